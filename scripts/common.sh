# shellcheck shell=bash
# Shared set-up for the scripts here. Source it: . "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# It sets `repo` (the root of the checkout) and defines say, fail, need_packages, build_heddle and mpirun_flags.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# say TEXT...: one line of progress on stderr, so that stdout keeps results only.
say() { printf '%s\n' "$*" >&2; }

# fail TEXT...: one line on stderr and exit 1.
fail() {
  say "$(basename "$0"): $*"
  exit 1
}

# What the build, the tests and the measurements need, as "package=test". A test that succeeds means that the thing is
# there, whoever installed it: a command in PATH, a header, a Python module. So a cmake from pip or a compiler built by
# hand counts.
heddle_needs=(
  "g++=have_compiler"
  "cmake=have_cmake"
  "ninja-build=have ninja"
  "ccache=have ccache"
  "pkg-config=have pkg-config"
  "openmpi-bin=have mpirun"
  "libopenmpi-dev=have mpicc"
  "libpmix-dev=have_pkg pmix"
  "libhwloc-dev=have_pkg hwloc"
  "hwloc=have lstopo-no-graphics"
  "catch2=have_header catch2/catch.hpp catch2/catch_all.hpp"
  "libcli11-dev=have_header CLI/CLI.hpp"
  "nlohmann-json3-dev=have_header nlohmann/json.hpp"
  "python3=have python3"
  "python3-matplotlib=matplotlib_python"
)

have() { command -v "$1" >/dev/null; }
have_compiler() { have g++ || have clang++ || { [ -n "${CXX:-}" ] && have "${CXX%% *}"; }; }
have_pkg() { have pkg-config && pkg-config --exists "$1"; }

# have_header NAME...: one of the headers is in a folder that the compiler searches.
have_header() {
  local name folder
  for name in "$@"; do
    for folder in ${CPLUS_INCLUDE_PATH:+${CPLUS_INCLUDE_PATH//:/ }} ${CPATH:+${CPATH//:/ }} /usr/local/include \
      /usr/include /usr/include/"$(uname -m)"-linux-gnu; do
      [ -e "$folder/$name" ] && return 0
    done
  done
  return 1
}

# matplotlib_python: prints a Python that has matplotlib. The system's own one is asked too: Debian's package serves only
# that, whatever python3 is first in PATH.
matplotlib_python() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -c 'import importlib.util as u; exit(u.find_spec("matplotlib") is None)' 2>/dev/null; then
      printf '%s\n' "$python"
      return 0
    fi
  done
  return 1
}

# 3.25 is the oldest CMake that CMakeLists.txt accepts.
have_cmake() {
  have cmake || return 1
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
  [ "$(printf '3.25\n%s\n' "$version" | sort -V | head -n 1)" = 3.25 ]
}

# need_packages [EXTRA...]: makes sure that everything in heddle_needs is there, and the extra Debian packages.
# Missing ones are installed with apt as root or through sudo without a password; otherwise prints the one line to run
# and exits 1. Takes some 50 ms when nothing is missing.
need_packages() {
  local need missing=() package
  for need in "${heddle_needs[@]}"; do
    eval "${need#*=}" >/dev/null 2>&1 || missing+=("${need%%=*}")
  done
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0

  have apt-get || fail "missing: ${missing[*]} (Debian names), and this system has no apt-get; install them and try again"
  local install=(apt-get install -y --no-install-recommends "${missing[@]}") as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      if have sudo; then
        say "Some packages are missing. Run this once, then try again:"
        say "  sudo apt-get update && sudo ${install[*]}"
      else
        say "Some packages are missing. Run this once as root, then try again:"
        say "  apt-get update && ${install[*]}"
      fi
      exit 1
    fi
    as_root=(sudo -n)
  fi
  say "installing: ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}"; } >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    rm -f "$log"
    fail "could not install the packages; the lines above say why. By hand: apt-get update && ${install[*]}"
  fi
  rm -f "$log"
}

# build_heddle DIR [CMAKE-ARGUMENT...]: configures into DIR with Ninja and ccache where they are there, and builds with
# all cores. HEDDLE_TARGETS, when set, names the only targets to build. The output is shown only when a step fails.
build_heddle() {
  local dir=$1 log
  shift
  local configure=(cmake -S "$repo" -B "$dir") targets=()
  # shellcheck disable=SC2206  # a list of words
  if [ -n "${HEDDLE_TARGETS:-}" ]; then targets=(--target $HEDDLE_TARGETS); fi
  # A build folder keeps the generator that it was made with.
  if [ ! -e "$dir/CMakeCache.txt" ] && have ninja; then configure+=(-G Ninja); fi
  if have ccache; then configure+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  mkdir -p "$dir"
  log=$dir/build.log
  say "building in ${dir#"$repo"/}"
  if ! "${configure[@]}" "$@" >"$log" 2>&1 ||
    ! cmake --build "$dir" -j "$(nproc)" "${targets[@]}" >>"$log" 2>&1; then
    grep -n -m 20 -E -A 5 'error|Error|FAILED' "$log" >&2 || tail -n 30 "$log" >&2
    fail "the build failed; the whole output is in $log"
  fi
}

# mpirun_flags: sets the array of that name to what Open MPI's mpirun needs here, whoever runs it and however few cores
# there are. Binding is left to the programs.
mpirun_flags() {
  mpirun_flags=(--oversubscribe --bind-to none)
  if [ "$(id -u)" -eq 0 ]; then mpirun_flags+=(--allow-run-as-root); fi
}
