/* Types, enumerators and limits of the API. Plain C11 or C++; nothing here needs a CUDA toolkit.
 * Layouts and values follow NVSHMEM 3.8 so that existing programs keep their meaning. */
#ifndef NVSHMEM_TYPES_H
#define NVSHMEM_TYPES_H

#if defined(__CUDACC_RTC__)
#include "device/config.h" /* NVRTC has no C library */
#else
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#endif

#define NVSHMEM_MAJOR_VERSION 1
#define NVSHMEM_MINOR_VERSION 5
#define NVSHMEM_VENDOR_MAJOR_VERSION 3
#define NVSHMEM_VENDOR_MINOR_VERSION 8
#define NVSHMEM_VENDOR_PATCH_VERSION 0
#define NVSHMEM_VENDOR_VERSION \
  (NVSHMEM_VENDOR_MAJOR_VERSION * 10000 + NVSHMEM_VENDOR_MINOR_VERSION * 100 + NVSHMEM_VENDOR_PATCH_VERSION)
#define NVSHMEM_VENDOR_STRING "Heddle v0.1.0 (NVSHMEM v3.8.0 API)"
#define NVSHMEM_MAX_NAME_LEN 256

/* Heddle's own version; NVSHMEM_VENDOR_* name the API level that programs test for. */
#define HEDDLE_MAJOR_VERSION 0
#define HEDDLE_MINOR_VERSION 1
#define HEDDLE_PATCH_VERSION 0
#define HEDDLE_VERSION_STRING "0.1.0"

enum nvshmemx_cmp_type {
  NVSHMEM_CMP_EQ = 0,
  NVSHMEM_CMP_NE = 1,
  NVSHMEM_CMP_GT = 2,
  NVSHMEM_CMP_LE = 3,
  NVSHMEM_CMP_LT = 4,
  NVSHMEM_CMP_GE = 5,
  NVSHMEM_CMP_SENTINEL = INT_MAX
};

enum nvshmem_thread_support {
  NVSHMEM_THREAD_SINGLE = 0,
  NVSHMEM_THREAD_FUNNELED = 1,
  NVSHMEM_THREAD_SERIALIZED = 2,
  NVSHMEM_THREAD_MULTIPLE = 3,
  NVSHMEM_THREAD_TYPE_SENTINEL = INT_MAX
};

enum nvshmem_signal_ops { NVSHMEM_SIGNAL_SET = 9, NVSHMEM_SIGNAL_ADD = 10 };

enum nvshmemx_status {
  NVSHMEMX_SUCCESS = 0,
  NVSHMEMX_ERROR_INVALID_VALUE = 1,
  NVSHMEMX_ERROR_OUT_OF_MEMORY = 2,
  NVSHMEMX_ERROR_NOT_SUPPORTED = 3,
  NVSHMEMX_ERROR_SYMMETRY = 4,
  NVSHMEMX_ERROR_GPU_NOT_SELECTED = 5,
  NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED = 6,
  NVSHMEMX_ERROR_INTERNAL = 7,
  NVSHMEMX_ERROR_SENTINEL = INT_MAX
};

enum nvshmemx_init_status_values {
  NVSHMEM_STATUS_NOT_INITIALIZED = 0,
  NVSHMEM_STATUS_IS_BOOTSTRAPPED = 1,
  NVSHMEM_STATUS_IS_INITIALIZED = 2,
  NVSHMEM_STATUS_LIMITED_MPG = 3,
  NVSHMEM_STATUS_FULL_MPG = 4,
  NVSHMEM_STATUS_INVALID = INT_MAX
};

enum nvshmemx_init_flags {
  NVSHMEMX_INIT_THREAD_PES = 1,
  NVSHMEMX_INIT_WITH_MPI_COMM = 1 << 1,
  NVSHMEMX_INIT_WITH_SHMEM = 1 << 2,
  NVSHMEMX_INIT_WITH_UNIQUEID = 1 << 3,
  NVSHMEMX_INIT_MAX = 1 << 30
};

typedef int32_t nvshmem_team_t;
typedef uint64_t nvshmemx_team_uniqueid_t;
typedef int nvshmemx_qp_handle_t;
typedef uint64_t nvshmemx_region_handle_t;

enum nvshmem_team_ids {
  NVSHMEM_TEAM_INVALID = -1,
  NVSHMEM_TEAM_WORLD = 0,
  NVSHMEM_TEAM_WORLD_INDEX = 0,
  NVSHMEM_TEAM_SHARED = 1,
  NVSHMEM_TEAM_SHARED_INDEX = 1,
  NVSHMEMX_TEAM_NODE = 2,
  NVSHMEM_TEAM_NODE_INDEX = 2,
  NVSHMEMX_TEAM_SAME_MYPE_NODE = 3,
  NVSHMEM_TEAM_SAME_MYPE_NODE_INDEX = 3,
  NVSHMEMI_TEAM_SAME_GPU = 4,
  NVSHMEM_TEAM_SAME_GPU_INDEX = 4,
  NVSHMEMI_TEAM_GPU_LEADERS = 5,
  NVSHMEM_TEAM_GPU_LEADERS_INDEX = 5,
  NVSHMEM_TEAM_MC_SHARED = 6,
  NVSHMEM_TEAM_MC_SHARED_INDEX = 6,
  NVSHMEM_TEAMS_MIN = 7,
  NVSHMEM_TEAM_INDEX_MAX = INT_MAX
};

typedef enum { NVSHMEM_PE_INVALID = -1, NVSHMEMX_PE_ANY = 1 << 15, NVSHMEMX_PE_ALL = 1 << 15 } nvshmem_pe_index_t;

typedef enum {
  NVSHMEMX_QP_HOST = 0,
  NVSHMEMX_QP_DEFAULT = 1,
  NVSHMEMX_QP_ANY = INT_MAX,
  NVSHMEMX_QP_ALL = INT_MAX
} nvshmemx_qp_handle_index_t;

typedef enum {
  NVSHMEMX_SMEM_RECOMMENDED = 0,
  NVSHMEMX_SMEM_MINIMUM = 1,
  NVSHMEMX_SMEM_BARRIERS_ONLY = 2,
  NVSHMEMX_SMEM_AMOUNT_MAX = INT_MAX
} nvshmemx_smem_amount_t;

enum nvshmemx_region_hints { NVSHMEMX_REGION_HINT_NONE = 0, NVSHMEMX_REGION_HINT_BATCH_RMA = 1 };

/* Versioned structures: the version word is (version << 16) + sizeof. */
typedef struct {
  int version;
  char internal[124];
} nvshmemx_uniqueid_t;

typedef struct {
  int version;
  nvshmemx_uniqueid_t* id;
  int myrank;
  int nranks;
} nvshmemx_uniqueid_args_t;

typedef struct {
  int version;
  nvshmemx_uniqueid_args_t uid_args;
  int cuda_device_id;
  char content[92];
} nvshmemx_init_args_t;

typedef struct {
  int version;
  void* mpi_comm;
  nvshmemx_init_args_t args;
} nvshmemx_init_attr_t;

typedef struct {
  int version;
  int num_contexts;
  nvshmemx_team_uniqueid_t uniqueid;
  char padding[48];
} nvshmem_team_config_t;

typedef struct {
  uint32_t hints;
  char reserved[60];
} nvshmemx_region_attrs_t;

#define NVSHMEMX_UNIQUEID_VERSION ((1 << 16) + (int)sizeof(nvshmemx_uniqueid_t))
#define NVSHMEMX_UNIQUEID_ARGS_VERSION ((1 << 16) + (int)sizeof(nvshmemx_uniqueid_args_t))
#define NVSHMEMX_INIT_ARGS_V1 ((1 << 16) + (int)sizeof(nvshmemx_init_args_t))
#define NVSHMEMX_INIT_ARGS_V2 ((2 << 16) + (int)sizeof(nvshmemx_init_args_t))
#define NVSHMEMX_INIT_ATTR_V1 ((1 << 16) + (int)sizeof(nvshmemx_init_attr_t))
#define NVSHMEMX_INIT_ATTR_V2 ((2 << 16) + (int)sizeof(nvshmemx_init_attr_t))
#define NVSHMEM_TEAM_CONFIG_V2 ((2 << 16) + (int)sizeof(nvshmem_team_config_t))

#define NVSHMEMX_UNIQUEID_INITIALIZER \
  {                                   \
    NVSHMEMX_UNIQUEID_VERSION, { 0 }  \
  }
#define NVSHMEMX_UNIQUEID_ARGS_INITIALIZER \
  { NVSHMEMX_UNIQUEID_ARGS_VERSION, NULL, -1, -1 }
#define NVSHMEMX_INIT_ARGS_INITIALIZER                                   \
  {                                                                      \
    NVSHMEMX_INIT_ARGS_V2, NVSHMEMX_UNIQUEID_ARGS_INITIALIZER, -1, { 0 } \
  }
#define NVSHMEMX_INIT_ARGS_V2_INITIALIZER NVSHMEMX_INIT_ARGS_INITIALIZER
#define NVSHMEMX_INIT_ATTR_INITIALIZER \
  { NVSHMEMX_INIT_ATTR_V2, NULL, NVSHMEMX_INIT_ARGS_INITIALIZER }
#define NVSHMEMX_INIT_ATTR_V1_INITIALIZER \
  { NVSHMEMX_INIT_ATTR_V1, NULL, NVSHMEMX_INIT_ARGS_INITIALIZER }
#define NVSHMEMX_REGION_ATTRS_INITIALIZER \
  {                                       \
    NVSHMEMX_REGION_HINT_NONE, { 0 }      \
  }
#define NVSHMEM_TEAM_CONFIG_INITIALIZER                \
  {                                                    \
    NVSHMEM_TEAM_CONFIG_V2, INT_MAX, UINT64_MAX, { 0 } \
  }
#define NVSHMEM_TEAM_CONFIG_MASK_NUM_CONTEXTS 1
#define NVSHMEM_TEAM_CONFIG_MASK_UNIQUEID 2
#define NVSHMEM_TEAM_UNIQUID_INITIALIZER UINT64_MAX

#endif
