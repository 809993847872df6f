#!/usr/bin/env bash
# build-nvshmem.sh PREFIX OUTDIR: builds device_perf against the NVSHMEM in PREFIX (include/ and lib/) as OUTDIR/device_perf,
# which joins its job through MPI. NVSHMEM's device code needs relocatable code and a device link. NVCC and ARCH (sm_90) may
# be set in the environment.
set -euo pipefail

fail() {
  printf 'build-nvshmem.sh: %s\n' "$*" >&2
  exit 1
}

[ $# -eq 2 ] || fail "usage: build-nvshmem.sh PREFIX OUTDIR"
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
prefix=$(cd "$1" && pwd) || fail "there is no folder $1"
mkdir -p "$2"
out=$(cd "$2" && pwd)
for file in include/nvshmem.h lib/libnvshmem_host.so.3 lib/libnvshmem_device.a; do
  [ -e "$prefix/$file" ] || fail "$prefix/$file is missing: is this the prefix of an NVSHMEM 3 install?"
done
command -v mpicc >/dev/null || fail "mpicc is missing; install libopenmpi-dev"
nvcc=${NVCC:-nvcc}
command -v "$nvcc" >/dev/null || fail "$nvcc is missing; set NVCC"

# PREFIX's headers as system headers: their warnings are not ours.
compile=("$nvcc" -std=c++17 -O3 "-arch=${ARCH:-sm_90}" -rdc=true -DPERFTEST_MPI -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX
  "-I$repo" -isystem "$prefix/include")
for folder in $(mpicc --showme:incdirs); do compile+=(-isystem "$folder"); done
link=("$nvcc" "-arch=${ARCH:-sm_90}" -rdc=true)
for folder in $(mpicc --showme:libdirs); do link+=("-L$folder" -Xlinker "-rpath,$folder"); done
for library in $(mpicc --showme:libs); do link+=("-l$library"); done

objects=$out/nvshmem-objects
mkdir -p "$objects"
sources=("$repo"/perftest/device/*.cu "$repo/perftest/common/report.cc")
for source in "${sources[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
  name=$(basename "$source")
  rm -f "$objects/${name%.*}.o"
  "${compile[@]}" -c "$source" -o "$objects/${name%.*}.o" &
done
wait
for source in "${sources[@]}"; do
  name=$(basename "$source")
  [ -e "$objects/${name%.*}.o" ] || fail "$name did not compile; the lines above say why"
done
"${link[@]}" "$objects"/*.o -o "$out/device_perf" "-L$prefix/lib" -l:libnvshmem_host.so.3 -lnvshmem_device \
  -Xlinker "-rpath,$prefix/lib"
printf 'built %s\n' "$out/device_perf"
