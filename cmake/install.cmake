# Install rules, CMake packages and pkg-config file. Everything finds itself from where it lies: an installed tree can be
# moved as a whole.
include(CMakePackageConfigHelpers)

get_target_property(heddle_soversion heddle SOVERSION)
set(heddle_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/heddle)
set(nvshmem_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/NVSHMEM)

# The API level that find_package(NVSHMEM <version>) compares with is the one the headers name.
set(nvshmem_version "")
file(STRINGS include/nvshmem_types.h version_lines REGEX "define NVSHMEM_VENDOR_(MAJOR|MINOR|PATCH)_VERSION [0-9]+")
foreach(line IN LISTS version_lines)
  string(REGEX REPLACE ".* ([0-9]+)$" "\\1" number "${line}")
  list(APPEND nvshmem_version ${number})
endforeach()
list(JOIN nvshmem_version "." nvshmem_version)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS include/nvshmem_types.h)

# Libraries and their compatibility names. The links are made in the build folder too, so that a program can link there.
add_library(nvshmem_device STATIC cmake/nvshmem_device.c)
set(compatibility_names libnvshmem_host.so.3 libnvshmem_host.so libnvshmem.so)
foreach(name IN LISTS compatibility_names)
  file(CREATE_LINK libheddle.so.${heddle_soversion} ${CMAKE_CURRENT_BINARY_DIR}/${name} SYMBOLIC)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name} DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()
install(TARGETS heddle EXPORT heddleTargets)
install(TARGETS nvshmem_device ARCHIVE)

# Public headers, and the device headers that they include as "device/x.h".
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh" PATTERN "*.inc")
install(DIRECTORY device/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/device
  FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh" PATTERN "*.inc")

# find_package(heddle)
install(EXPORT heddleTargets NAMESPACE heddle:: DESTINATION ${heddle_package_dir})
configure_package_config_file(cmake/heddleConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/heddleConfig.cmake
  INSTALL_DESTINATION ${heddle_package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/heddleConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/heddleConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/heddleConfigVersion.cmake
  DESTINATION ${heddle_package_dir})

# find_package(NVSHMEM)
configure_package_config_file(cmake/NVSHMEMConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/NVSHMEMConfig.cmake
  INSTALL_DESTINATION ${nvshmem_package_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/NVSHMEMConfigVersion.cmake
  VERSION ${nvshmem_version} COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/NVSHMEMConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/NVSHMEMConfigVersion.cmake
  DESTINATION ${nvshmem_package_dir})

# pkg-config heddle
set(heddle_pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  file(RELATIVE_PATH heddle_pc_to_prefix "${heddle_pc_dir}" "${CMAKE_INSTALL_PREFIX}")
else()
  file(RELATIVE_PATH heddle_pc_to_prefix "/p/${heddle_pc_dir}" "/p")
endif()
foreach(kind IN ITEMS libdir includedir)
  string(TOUPPER ${kind} upper)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${upper}}")
    set(heddle_pc_${kind} "${CMAKE_INSTALL_${upper}}")
  else()
    set(heddle_pc_${kind} "\${prefix}/${CMAKE_INSTALL_${upper}}")
  endif()
endforeach()
configure_file(cmake/heddle.pc.in ${CMAKE_CURRENT_BINARY_DIR}/heddle.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/heddle.pc DESTINATION ${heddle_pc_dir})

# For scripts, which read the cache: whether this build found a toolkit.
set(HEDDLE_BUILT_WITH_CUDA ${HEDDLE_HAVE_CUDA} CACHE INTERNAL "A CUDA toolkit was found")
