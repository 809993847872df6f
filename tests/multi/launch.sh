#!/bin/sh
# Runs a test program under a launcher, or skips the test (77) saying why:
#   launch.sh heddlerun PATH N [heddlerun options] -- program arguments
#   launch.sh mpirun PATH N [mpirun options] -- program arguments
kind=$1
launcher=$2
ranks=$3
shift 3
options=
while [ "$1" != -- ]; do
  options="$options $1"
  shift
done
shift
if [ -z "$launcher" ] || ! command -v "$launcher" > /dev/null; then
  echo "skipped: there is no $kind here"
  exit 77
fi
if [ "$kind" = mpirun ]; then
  if ! "$launcher" --version 2> /dev/null | grep -q "Open MPI"; then
    echo "skipped: $launcher is not Open MPI's, so it may not speak PMIx"
    exit 77
  fi
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  options="--oversubscribe $options"
fi
# shellcheck disable=SC2086
exec "$launcher" -n "$ranks" $options "$@"
