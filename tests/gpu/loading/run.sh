#!/usr/bin/env bash
# Builds a program with kernels in several units, shared libraries and modules by nvcc itself, linked with -lheddle alone,
# and runs it with two PEs.
# usage: run.sh build|run NVCC SOURCE-FOLDER CXX FOLDER-OF-LIBHEDDLE HEDDLERUN [ARCH]
# "build" takes two of the four ways to build and wants no GPU: without one the program only opens and closes its library.
# Exit code 77: there are not two GPUs.
set -euo pipefail
what=$1 nvcc=$2 source=$3 cxx=$4 library=$5 heddlerun=$6 arch=${7:-sm_90}
if [ "$what" = run ] && [ ! -e /dev/nvidiactl ]; then
  echo "skipped: this machine has no NVIDIA driver"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
here=$source/tests/gpu/loading
for unit in program_two library_one library_two library_three late_one late_two module; do
  printf '#define UNIT %s\n#include "unit.cuh"\n' "$unit" >"$unit.cu"
done
{ # NVRTC has the folders, but a file that is in no folder is easier to follow
  printf '#define UNIT module\n'
  cat "$here/unit.cuh"
} >module-nvrtc.cu
sed -i '/#pragma once/d' module-nvrtc.cu

nvrtc=()
if [ -e "$toolkit/include/nvrtc.h" ] && [ -e "$toolkit/lib64/libnvrtc.so" ]; then
  nvrtc=(-DWITH_NVRTC -L"$toolkit/lib64" -lnvrtc -Xlinker=-rpath,"$toolkit/lib64")
fi
export LOADING_NVRTC_OPTIONS="-arch=$arch
-std=c++17
-I$source
-I$source/include
-I$toolkit/include"

build() { # build FOLDER RDC CUDART STANDARD
  local folder=$1 rdc=$2 cudart=$3 standard=$4 said
  mkdir "$folder"
  local flags=(-std="$standard" -rdc="$rdc" -cudart "$cudart" -arch="$arch" -ccbin "$cxx" -Xcompiler=-Wall,-Wextra,-fPIC
    -I"$source" -I"$source/include" -I"$here" -L"$library" -Xlinker=-rpath,"$library")
  said=$(
    exec 2>&1
    "$nvcc" "${flags[@]}" -shared library_one.cu -o "$folder/libone.so" -lheddle
    "$nvcc" "${flags[@]}" -shared library_two.cu library_three.cu -o "$folder/libtwo.so" -lheddle
    "$nvcc" "${flags[@]}" -shared late_one.cu late_two.cu -o "$folder/liblate.so" -lheddle
    "$nvcc" "${flags[@]}" "$here/main.cu" program_two.cu -o "$folder/main" -L"$folder" -Xlinker=-rpath,"$PWD/$folder" \
      -lone -ltwo -lheddle ${nvrtc[@]+"${nvrtc[@]}"}
    for kind in cubin ptx; do
      "$nvcc" -std="$standard" -arch="$arch" -ccbin "$cxx" -I"$source" -I"$source/include" -I"$here" -DHEDDLE_MODULE \
        "-$kind" module.cu -o "$folder/module.$kind"
    done
  ) || { printf 'FAILED: %s\n%s\n' "$folder" "$said" && return 1; }
  [ -z "$said" ] || { printf 'FAILED: nvcc says something: %s\n%s\n' "$folder" "$said" && return 1; }
  cp module-nvrtc.cu "$folder/module.cu"
}

run() { # run FOLDER
  local code=0
  NVSHMEM_SYMMETRIC_SIZE=512M NVSHMEM_CUMEM_GRANULARITY=4M HEDDLE_TIMEOUT=60 HEDDLE_WAIT_TIMEOUT=20 \
    timeout 120 "$heddlerun" -n 2 "$work/$1/main" "$work/$1" || code=$?
  return "$code"
}

skipped=0
both() {
  local code=0
  echo "== -rdc=$2, cudart $3, $4"
  build "$@"
  run "$1" || code=$?
  [ "$code" != 77 ] || skipped=1
  [ "$code" = 0 ] || [ "$code" = 77 ] || exit "$code"
}
both plain false static c++17
both linked true shared c++20
if [ "$what" = run ]; then
  both plain_shared false shared c++20
  both linked_static true static c++17
fi
if [ "$skipped" = 1 ] && [ "$what" = run ]; then exit 77; fi
