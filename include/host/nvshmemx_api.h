/* For programs that include this path; the host names are in nvshmem_host.h. */
#ifndef HOST_NVSHMEMX_API_H
#define HOST_NVSHMEMX_API_H

#include "../nvshmem_host.h"

#endif
