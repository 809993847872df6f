#!/bin/sh
# heddlerun ends with its job's code, and leaves nothing, even when libpmix never comes back from PMIx_server_finalize.
# usage: stuck_finalize.sh HEDDLERUN LIBRARY, which stands before libpmix
set -u
run=$1
library=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tmp"
export TMPDIR="$work/tmp"
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# Rank 1 fails once both ranks have left a process behind.
: > "$work/pids"
LD_PRELOAD=$library timeout --signal=KILL 60 "$run" -n 2 sh -c "unset LD_PRELOAD
  sleep 120 & echo \$! >> $work/pids
  test \$PMIX_RANK = 1 || exec sleep 120
  while [ \$(wc -l < $work/pids) -lt 2 ]; do sleep 0.02; done; exit 5" 2> "$work/err"
code=$?
[ $code -eq 5 ] || fail "the code is $code and not 5"
grep -q "PMIx_server_finalize is stuck" "$work/err" || fail "finalize was not stuck: $(cat "$work/err")"
for pid in $(cat "$work/pids"); do
  tries=0
  while :; do
    # A zombie that its new parent has not collected yet is gone all the same.
    state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$pid/status" 2> /dev/null)
    case $state in "" | Z | X) break ;; esac
    [ $tries -lt 100 ] || { fail "process $pid of a rank is still there, in state $state" && break; }
    sleep 0.05
    tries=$((tries + 1))
  done
done
[ -z "$(ls -A "$TMPDIR")" ] || fail "left in TMPDIR: $(ls -A "$TMPDIR")"

[ $failures -eq 0 ] && echo "a stuck libpmix holds nobody"
exit $((failures > 0))
