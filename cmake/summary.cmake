# The last words of configuring: what was found, and what is not there without it.

# heddle_found(NAME FOUND WHAT LOSS): WHAT when FOUND is true, else that it is missing, and the LOSS.
function(heddle_found name found what loss)
  string(SUBSTRING "${name}         " 0 10 name)
  if(found)
    string(STRIP "${what}" what)
    message(STATUS "  ${name}${what}")
  else()
    message(STATUS "  ${name}missing: ${loss}")
  endif()
endfunction()

function(heddle_part name built without)
  if(built)
    list(APPEND parts ${name})
  else()
    list(APPEND parts "no ${name} (${without})")
  endif()
  set(parts ${parts} PARENT_SCOPE)
endfunction()

set(parts "library")
heddle_part("tools" "${HEDDLE_BUILD_TOOLS}" "HEDDLE_BUILD_TOOLS")
heddle_part("performance tests" "${HEDDLE_BUILD_PERFTEST}" "HEDDLE_BUILD_PERFTEST")
heddle_part("tests" "${HEDDLE_BUILD_TESTS}" "HEDDLE_BUILD_TESTS")
list(JOIN parts ", " parts)
message(STATUS "Heddle ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}: ${parts}")
if(HEDDLE_CUDA STREQUAL "OFF")
  message(STATUS "  CUDA      off (HEDDLE_CUDA=OFF): no heaps in GPU memory, no calls from kernels")
else()
  heddle_found(CUDA "${HEDDLE_HAVE_CUDA}" "${CUDAToolkit_VERSION}, ${CUDAToolkit_NVCC_EXECUTABLE}"
    "no heaps in GPU memory, no calls from kernels (a toolkit of 12.0 or newer with nvcc; CUDAToolkit_ROOT says where)")
endif()
heddle_found(PMIx "${PMIX_FOUND}" "${PMIX_VERSION}, ${PMIX_LIBDIR}"
  "mpirun and srun cannot start jobs, and there is no heddlerun (libpmix-dev and pkg-config)")
if(HEDDLE_BUILD_TOOLS)
  heddle_found(hwloc "${HWLOC_FOUND}" "${HWLOC_VERSION}, ${HWLOC_LIBDIR}"
    "heddle-info shows no topology (libhwloc-dev and pkg-config)")
endif()
if(HEDDLE_BUILD_PERFTEST)
  heddle_found(CLI11 "$CACHE{CLI11_DIR}" "$CACHE{CLI11_DIR}" "no performance tests of the host (libcli11-dev)")
  heddle_found(OpenSHMEM "$CACHE{OSHCC}" "$CACHE{OSHCC}" "no performance tests to compare with it (libopenmpi-dev)")
endif()
if(HEDDLE_BUILD_TESTS)
  heddle_found(MPI "$CACHE{MPI_C_COMPILER}" "$CACHE{MPI_C_COMPILER}"
    "no tests of joining from MPI programs (libopenmpi-dev); the library itself needs none")
  heddle_found(mpirun "$CACHE{HEDDLE_MPIRUN}" "$CACHE{HEDDLE_MPIRUN}" "no tests of starting by it (openmpi-bin)")
endif()
