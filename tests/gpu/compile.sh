#!/usr/bin/env bash
# What the device headers promise to whoever compiles with them; needs nvcc and no GPU.
# usage: compile.sh NVCC SOURCE-FOLDER CXX
set -euo pipefail
nvcc=$1 source=$2 cxx=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
flags=(-ccbin "$cxx" -I"$source" -I"$source/include")
passed=0 failed=0
check() { # check NAME COMMAND...: the command succeeds, without a word
  local name=$1 said
  shift
  if said=$("$@" 2>&1) && [ -z "$said" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: %s\n%s\n' "$name" "$(cut -c1-300 <<<"$said" | head -20)"
  fi
}

cat >none.cu </dev/null
cat >include.cu <<<'#include <nvshmem.h>'
cat >p.cu <<'EOF'
#include <nvshmem.h>
#include <nvshmemx.h>
__global__ void p(int* box, int value) { nvshmem_int_p(box, value, 1); }
EOF
cat >put.cu <<'EOF'
#include <nvshmemx.h>
__global__ void put(float* box, const float* source, size_t count) { nvshmemx_float_put_nbi_block(box, source, count, 1); }
EOF
cat >first.cu <<'EOF'
#include <nvshmem.h>
__global__ void first(int* box) {
  nvshmemx_int_put_block(box, box + 64, 9, nvshmem_n_pes() - 1);
  nvshmem_int_wait_until(box, NVSHMEM_CMP_EQ, 3);
}
EOF
cat >second.cu <<'EOF'
#include <nvshmem.h>
__global__ void second(int* box) {
  nvshmemx_int_put_block(box, box + 64, 9, nvshmem_my_pe());
  nvshmem_int_wait_until(box, NVSHMEM_CMP_NE, 3);
  nvshmemx_barrier_all_block();
}
int pes() { return nvshmem_n_pes(); }  // on the host, the library's
EOF

# Registers and stack (ptxas -v) and seconds of processor time of a kernel.
costs() { # costs FILE MOST-REGISTERS
  local said
  said=$("$nvcc" "${flags[@]}" -std=c++17 -arch=sm_90 -Xptxas -v -cubin "$1" -o costs.cubin 2>&1) || { echo "$said" && return; }
  local registers stack
  registers=$(sed -n 's/.*Used \([0-9]*\) registers.*/\1/p' <<<"$said" | sort -n | tail -1)
  stack=$(sed -n 's/^ *\([0-9]*\) bytes stack frame.*/\1/p' <<<"$said" | sort -n | tail -1)
  [ "$registers" -le "$2" ] || echo "$registers registers, not at most $2"
  [ "$stack" -eq 0 ] || echo "$stack bytes of stack"
}
seconds() { # seconds FILE: of user time
  local TIMEFORMAT=%U
  { time "$nvcc" "${flags[@]}" -std=c++17 -arch=sm_90 -c "$1" -o seconds.o; } 2>&1
}
takes_at_most() { # takes_at_most FILE SECONDS: more than an empty file
  local empty with
  empty=$(seconds none.cu) with=$(seconds "$1")
  awk -v empty="$empty" -v with="$with" -v most="$2" \
    'BEGIN { if (!(with - empty <= most)) print with, "s, an empty file", empty, "s: more than", most, "s on top" }'
}
cat >wide.cu <<'EOF'
#include <nvshmem.h>
#include <nvshmemx.h>
#ifndef BOUNDS
#define BOUNDS
#endif
__global__ void BOUNDS put_block(float* box, const float* source, size_t count) {
  nvshmemx_float_put_block(box, source, count, 1);
}
__global__ void BOUNDS get_block(char* box, const char* source, size_t bytes) { nvshmemx_getmem_block(box, source, bytes, 1); }
__global__ void BOUNDS get_warp(char* box, const char* source, size_t bytes) { nvshmemx_getmem_warp(box, source, bytes, 1); }
__global__ void BOUNDS put_signal(char* box, const char* source, size_t bytes, uint64_t* signal) {
  nvshmemx_putmem_signal_block(box, source, bytes, signal, 1, NVSHMEM_SIGNAL_SET, 1);
}
__global__ void BOUNDS wait(uint64_t* signal) { nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, 3); }
__global__ void BOUNDS meet() {
  nvshmemx_barrier_all_block();
  nvshmemx_barrier_warpgroup(NVSHMEM_TEAM_WORLD);
}
__global__ void BOUNDS donate(char* box, const char* source, size_t bytes) {
  extern __shared__ char memory[];
  nvshmemx_give_smem(memory, 98560);
  __syncthreads();
  nvshmemx_putmem_block(box, source, bytes, 1);
  __syncthreads();
  nvshmemx_release_smem();
}
__global__ void BOUNDS by_threads(char* box, const char* source, size_t bytes) {
  nvshmem_putmem(box, source, bytes, 1);
  nvshmem_getmem(box, source, bytes, 1);
}
EOF
# A block of 1024 threads has 64 registers for each; with -rdc=true the linker says how many a kernel and what it calls take.
fits_1024_threads() { # fits_1024_threads FLAGS...
  local most
  "$nvcc" "${flags[@]}" -std=c++17 -arch=sm_90 -rdc=true "$@" -c wide.cu -o wide.o 2>&1 || return 0
  most=$("$nvcc" -arch=sm_90 -dlink wide.o -o wide-linked.o -Xnvlink -v 2>&1 | sed -n 's/.*used \([0-9]*\) registers.*/\1/p' |
    sort -n | tail -1)
  [ "${most:-999}" -le 64 ] || echo "${most:-unknown} registers, not at most 64"
}
check "blocks of 1024 threads, -rdc=true" fits_1024_threads
check "blocks of 1024 threads, -rdc=true, launch bounds" fits_1024_threads -DBOUNDS='__launch_bounds__(1024)'
check "blocks of 1024 threads, -rdc=true, HEDDLE_CHECK=1, launch bounds" fits_1024_threads -DHEDDLE_CHECK=1 \
  -DBOUNDS='__launch_bounds__(1024)'
check "p: registers and stack" costs p.cu 16
check "block put: registers and stack" costs put.cu 40
check "seconds to include" takes_at_most include.cu 2
check "seconds to compile a put" takes_at_most put.cu 3

for standard in 17 20; do
  for rdc in false true; do
    check "two translation units, C++$standard, -rdc=$rdc" \
      "$nvcc" "${flags[@]}" -std=c++$standard -rdc=$rdc -arch=sm_90 -Xcompiler=-Wall,-Wextra,-fPIC -shared first.cu second.cu -o both.so
  done
done
for arch in 70 75 80 100 120; do
  if "$nvcc" --list-gpu-code | grep -qx "sm_$arch"; then
    check "sm_$arch" "$nvcc" "${flags[@]}" -std=c++17 -arch=sm_$arch -cubin second.cu -o arch.cubin
  fi
done
check "HEDDLE_CHECK=1" "$nvcc" "${flags[@]}" -std=c++17 -arch=sm_90 -DHEDDLE_CHECK=1 -cubin second.cu -o checked.cubin
for rdc in false true; do
  check "a module of known name, -rdc=$rdc" \
    "$nvcc" "${flags[@]}" -std=c++17 -arch=sm_90 -DHEDDLE_MODULE -rdc=$rdc -ptx second.cu -o module.ptx
  check "its state, -rdc=$rdc" awk '/heddle_device_state_d\[/ { found = 1 } END { if (!found) print "no state" }' module.ptx
done
check "host names only" "$nvcc" "${flags[@]}" -std=c++17 -DNVSHMEM_HOSTLIB_ONLY -arch=sm_90 -c include.cu -o hostlib.o

# Every name.
"$source/tests/gpu/names.py" names.cu "$source/tests/gpu/device_names.tsv" "$source/tests/api/host_names.tsv"
check "every name has its type and a body" "$nvcc" "${flags[@]}" -std=c++17 -arch=sm_90 -ptx names.cu -o names.ptx

# NVRTC.
toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
cat >nvrtc.cc <<'EOF'
#include <nvrtc.h>
#include <cstdio>
#include <string>
int main(int count, char** arguments) {  // SOURCE option...: compiles it, and prints what the compiler says
  std::string text;
  std::FILE* const file = std::fopen(arguments[1], "r");
  for (int c; (c = std::fgetc(file)) != EOF;) text.push_back(static_cast<char>(c));
  nvrtcProgram program;
  nvrtcCreateProgram(&program, text.c_str(), arguments[1], 0, nullptr, nullptr);
  const nvrtcResult result = nvrtcCompileProgram(program, count - 2, arguments + 2);
  size_t bytes = 0;
  nvrtcGetProgramLogSize(program, &bytes);
  std::string log(bytes, '\0');
  nvrtcGetProgramLog(program, log.data());
  std::fputs(log.c_str(), stdout);
  return result == NVRTC_SUCCESS ? 0 : 1;
}
EOF
grep -v '^int pes' second.cu >jit.cu
if [ -e "$toolkit/include/nvrtc.h" ] && "$cxx" -std=c++17 -I"$toolkit/include" nvrtc.cc -L"$toolkit/lib64" -lnvrtc \
  -Wl,-rpath,"$toolkit/lib64" -o nvrtc 2>/dev/null; then
  for rdc in false true; do
    check "NVRTC, -rdc=$rdc" ./nvrtc jit.cu -arch=sm_90 -std=c++17 -rdc=$rdc -I"$source" -I"$source/include" -I"$toolkit/include"
  done
else
  echo "NVRTC is not here: not tested"
fi

echo "device headers: $passed passed, $failed failed"
[ $failed = 0 ]
