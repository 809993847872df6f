/* The one table of typed names. Headers, the library and kernels are generated from these lists, and a test compares
 * them with the API: X(NAME, TYPE) for types, X(BITS) for sizes. Plain C11 or C++. */
#ifndef NVSHMEM_NAMES_H
#define NVSHMEM_NAMES_H

/* Put, get, p, g, iput, iget, put_signal: the standard RMA types. */
#define HEDDLE_RMA_TYPES(X)        \
  X(half, __half)                  \
  X(bfloat16, __nv_bfloat16)       \
  X(float, float)                  \
  X(double, double)                \
  X(char, char)                    \
  X(schar, signed char)            \
  X(uchar, unsigned char)          \
  X(short, short)                  \
  X(ushort, unsigned short)        \
  X(int, int)                      \
  X(uint, unsigned int)            \
  X(long, long)                    \
  X(ulong, unsigned long)          \
  X(longlong, long long)           \
  X(ulonglong, unsigned long long) \
  X(int8, int8_t)                  \
  X(int16, int16_t)                \
  X(int32, int32_t)                \
  X(int64, int64_t)                \
  X(uint8, uint8_t)                \
  X(uint16, uint16_t)              \
  X(uint32, uint32_t)              \
  X(uint64, uint64_t)              \
  X(size, size_t)                  \
  X(ptrdiff, ptrdiff_t)

/* The same calls by element size, in bits. */
#define HEDDLE_SIZES(X) X(8) X(16) X(32) X(64) X(128)

/* wait_until and test. */
#define HEDDLE_WAIT_TYPES(X)       \
  X(short, short)                  \
  X(ushort, unsigned short)        \
  X(int, int)                      \
  X(uint, unsigned int)            \
  X(long, long)                    \
  X(ulong, unsigned long)          \
  X(longlong, long long)           \
  X(ulonglong, unsigned long long) \
  X(int32, int32_t)                \
  X(int64, int64_t)                \
  X(uint32, uint32_t)              \
  X(uint64, uint64_t)              \
  X(size, size_t)                  \
  X(ptrdiff, ptrdiff_t)

/* atomic_and, _or, _xor and their fetching forms. */
#define HEDDLE_AMO_BITWISE_TYPES(X) \
  X(uint, unsigned int)             \
  X(ulong, unsigned long)           \
  X(ulonglong, unsigned long long)  \
  X(int32, int32_t)                 \
  X(int64, int64_t)                 \
  X(uint32, uint32_t)               \
  X(uint64, uint64_t)

/* atomic_inc, _add, _compare_swap and their fetching forms. */
#define HEDDLE_AMO_STANDARD_TYPES(X) \
  HEDDLE_AMO_BITWISE_TYPES(X)        \
  X(int, int)                        \
  X(long, long)                      \
  X(longlong, long long)             \
  X(size, size_t)                    \
  X(ptrdiff, ptrdiff_t)

/* nvshmemx_*_atomic_add and _fetch_add. */
#define HEDDLE_AMO_FLOAT_TYPES(X) \
  X(half, __half)                 \
  X(float, float)                 \
  X(double, double)

/* atomic_fetch, _set, _swap. */
#define HEDDLE_AMO_EXTENDED_TYPES(X) \
  HEDDLE_AMO_STANDARD_TYPES(X)       \
  HEDDLE_AMO_FLOAT_TYPES(X)

#endif
