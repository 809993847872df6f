/* libnvshmem_device.a holds nothing, because device code is in the headers: it is there for existing link lines. */
typedef int heddle_no_device_library;
