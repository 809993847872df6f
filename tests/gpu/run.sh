#!/bin/sh
# Runs a GPU program under heddlerun, or skips (77) where it was not built: run.sh PROGRAM HEDDLERUN PES arguments
program=$1 heddlerun=$2 pes=$3
shift 3
if [ ! -x "$program" ]; then
  echo "skipped: $program is not built; make the target gpu_tests"
  exit 77
fi
exec "$heddlerun" -n "$pes" "$program" "$@"
