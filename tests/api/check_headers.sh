#!/bin/sh
# Compiles every public header alone, as C11, C++11, C++17 and C++20, with warnings as errors, with and without CUDA's headers.
# usage: check_headers.sh CC CXX INCLUDE-FOLDER [CUDA-INCLUDE-FOLDER [NVCC]]
set -u
cc=$1
cxx=$2
include=$3
cuda=${4:-}
nvcc=${5:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failures=0

# try WHAT COMPILER...: the compiler takes $work/t.*
try() {
  what=$1
  shift
  if "$@" -o "$work/t.o" > "$work/log" 2>&1 && [ ! -s "$work/log" ]; then
    passed=$((passed + 1))
  else
    echo "FAILED: $what: $*"
    head -n 20 "$work/log"
    failures=$((failures + 1))
  fi
}

# The declarations must be usable, not only readable.
use='int use(int* symmetric, __half* half); int use(int* symmetric, __half* half) {
  nvshmem_int_p(symmetric, 1, 0); nvshmem_half_p(half, nvshmem_half_g(half, 0), 0); return nvshmem_n_pes(); }'

warnings="-Wall -Wextra -Werror -pedantic"
for header in nvshmem.h nvshmemx.h nvshmem_host.h host/nvshmem_api.h host/nvshmemx_api.h heddle.h nvshmem_types.h \
  nvshmem_cuda_types.h nvshmem_names.h device_host/nvshmem_common.cuh; do
  case $header in
    nvshmem.h | nvshmemx.h | nvshmem_host.h | host/*) body=$use ;;
    *) body='int unused(void); int unused(void) { return 0; }' ;;
  esac
  printf '#include "%s"\n#include "%s"\n%s\n' "$header" "$header" "$body" > "$work/t.c"
  cp "$work/t.c" "$work/t.cc"
  for toolkit in "" $cuda; do
    # CUDA's own headers are not held to our warnings.
    system=${toolkit:+-isystem $toolkit}
    for only in "" -DNVSHMEM_HOSTLIB_ONLY; do
      [ -n "$only" ] && [ "$header" != nvshmem.h ] && continue
      try "$header as C11 $system $only" "$cc" -std=c11 $warnings $only -I "$include" $system -c "$work/t.c"
      # Host code alone may be older than kernels.
      for standard in c++11 c++17 c++20; do
        try "$header as $standard $system $only" "$cxx" -std=$standard $warnings $only -I "$include" $system -c "$work/t.cc"
      done
    done
  done
done

if [ -n "$nvcc" ]; then
  printf '#include "nvshmem.h"\n#include "nvshmemx.h"\n#include "heddle.h"\n%s\n' "$use" > "$work/t.cu"
  for standard in c++17 c++20; do
    try "nvshmem.h by nvcc as $standard" "$nvcc" -std=$standard -Wno-deprecated-gpu-targets -DNVSHMEM_HOSTLIB_ONLY \
      -I "$include" -c "$work/t.cu"
  done
  # Kernels' names in older C++ are one sentence, not pages of errors.
  "$nvcc" -std=c++11 -Wno-deprecated-gpu-targets -I "$include" -I "$include/.." -c "$work/t.cu" -o "$work/t.o" > "$work/log" 2>&1
  if [ "$(grep -c 'error' "$work/log")" -le 2 ] && grep -q 'need C++17 or newer' "$work/log"; then
    passed=$((passed + 1))
  else
    echo "FAILED: nvshmem.h by nvcc as c++11 does not ask for C++17"
    head -n 20 "$work/log"
    failures=$((failures + 1))
  fi
fi

echo "headers: $passed passed, $failures failed"
[ $failures -eq 0 ] && [ $passed -gt 0 ]
