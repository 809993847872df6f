/* The names that begin with nvshmemx_ are declared with the others. */
#ifndef NVSHMEMX_H
#define NVSHMEMX_H

#include "nvshmem.h"

#endif
