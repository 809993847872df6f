#!/bin/sh
# What heddlerun promises, checked from outside: test_heddlerun.sh HEDDLERUN BOOT_PROBE
set -u
run=$1
probe=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tmp"
export TMPDIR="$work/tmp"
failures=0

# check WHAT EXPECTED ACTUAL
check() {
  if [ "$2" != "$3" ]; then
    echo "FAILED: $1: expected \"$2\", got \"$3\""
    failures=$((failures + 1))
  fi
}

# has WHAT PATTERN FILE: the file has a line that matches
has() {
  if ! grep -q -e "$2" "$3"; then
    echo "FAILED: $1: no line matches \"$2\" in:"
    sed 's/^/    /' "$3"
    failures=$((failures + 1))
  fi
}

# wait_for FILE LINES: until the file has that many lines, at most 10 s
wait_for() {
  tries=0
  while [ "$(wc -l < "$1" 2> /dev/null || echo 0)" -lt "$2" ] && [ $tries -lt 200 ]; do
    sleep 0.05
    tries=$((tries + 1))
  done
}

# gone FILE: until no process of the ids in the file lives, at most 5 s; prints how many do
gone() {
  tries=0
  while :; do
    living=0
    for pid in $(cat "$1"); do
      # A zombie that its new parent has not collected yet is gone all the same.
      state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$pid/status" 2> /dev/null)
      [ -n "$state" ] && [ "$state" != Z ] && [ "$state" != X ] && living=$((living + 1))
    done
    if [ $living -eq 0 ] || [ $tries -ge 100 ]; then break; fi
    sleep 0.05
    tries=$((tries + 1))
  done
  echo $living
}

# ---- exit codes
"$run" -n 4 true
check "all succeed" 0 $?
"$run" -n 4 sh -c 'test $PMIX_RANK != 2 || exit 7; exec sleep 30' 2> "$work/err"
check "code of the first that fails" 7 $?
has "names the rank" "PE 2 (pid [0-9]*) exited with code 7" "$work/err"
"$run" -n 2 sh -c 'test $PMIX_RANK != 1 || kill -SEGV $$; exec sleep 30' 2> "$work/err"
check "128 + signal" 139 $?
has "names the signal" "PE 1 .* signal 11" "$work/err"
"$run" -n 3 --keep-going sh -c 'test $PMIX_RANK != 0 || exit 3; sleep 0.3; echo alive' > "$work/out" 2> "$work/err"
check "keep going: code" 3 $?
check "keep going: the others lived" 2 "$(grep -c alive "$work/out")"
"$run" -n 2 --timeout 0.3 sleep 30 2> "$work/err"
check "time-out" 124 $?
has "says so" "timed out after 0.3 seconds" "$work/err"
"$run" -n 2 --timeout 0.3 --grace 0.2 sh -c 'trap "" TERM; while :; do sleep 0.1; done' 2> /dev/null
check "time-out against one that ignores SIGTERM" 124 $?
"$run" -n 4 "$probe" abort 3 42 2> "$work/err"
check "PMIx_Abort" 42 $?
has "says who" "PE 3 asked to end the job with code 42: boot_probe was asked to" "$work/err"

# ---- wrong arguments
for wrong in "" "-n 0 true" "-n 513 true" "-n x true" "-n 2" "--sideways -n 2 true" "-n 2 --nodes 3 true" \
  "-n 2 --bind sideways true" "-n 2 --timeout -1 true"; do
  # shellcheck disable=SC2086
  "$run" $wrong > "$work/err" 2>&1
  check "code of: heddlerun $wrong" 2 $?
  check "one line for: heddlerun $wrong" 1 "$(wc -l < "$work/err")"
done
"$run" -n 4 no-such-program-here 2> "$work/err"
check "unknown program" 127 $?
check "unknown program: one line" 1 "$(wc -l < "$work/err")"
"$run" -n 2 "$work" 2> /dev/null
check "a folder is no program" 126 $?
"$run" --help > "$work/out"
check "help" 0 $?
has "help names an option" "--keep-going" "$work/out"

# ---- input and output
echo hello | "$run" -n 3 sh -c 'read -r line && echo "$PMIX_RANK $line"; true' > "$work/out" 2> /dev/null
has "input goes to rank 0" "^0 hello$" "$work/out"
check "and to nobody else" 1 "$(wc -l < "$work/out")"
"$run" -n 4 -p sh -c 'i=0; while [ $i -lt 200 ]; do printf "rank %s " $PMIX_RANK; echo "line $i"; i=$((i + 1)); done
  printf "no end"; echo bad >&2' > "$work/out" 2> "$work/err"
check "prefix: lines" 804 "$(wc -l < "$work/out")"
for k in 0 1 2 3; do
  check "prefix: whole lines of PE $k" 200 "$(grep -c "^\[PE $k\] rank $k line [0-9]*$" "$work/out")"
  check "prefix: in order" "$(seq 0 199 | tr '\n' ' ')" "$(sed -n "s/^\[PE $k\] rank $k line //p" "$work/out" | tr '\n' ' ')"
  has "prefix: a last line without an end" "^\[PE $k\] no end$" "$work/out"
  has "prefix: errors" "^\[PE $k\] bad$" "$work/err"
done

# ---- environment
OMPI_COMM_WORLD_RANK=5 SLURM_PROCID=5 PMI_RANK=5 PMIX_RANK=5 PMIX_NAMESPACE=other "$run" -n 1 env > "$work/out"
check "no outer launcher's rank" 0 "$(grep -c '_\(RANK\|PROCID\)=5' "$work/out")"
has "our rank" "^PMIX_RANK=0$" "$work/out"
has "our job" "^PMIX_NAMESPACE=heddlerun" "$work/out"
ls /proc/self/fd > "$work/ours"
"$run" -n 1 ls /proc/self/fd > "$work/out"
check "no descriptor of heddlerun's in a rank" "$(cat "$work/ours")" "$(cat "$work/out")"
"$run" -n 2 --bind core sh -c 'grep Cpus_allowed_list /proc/self/status' > "$work/out"
check "bound to one processor each" 2 "$(grep -c 'Cpus_allowed_list:[[:space:]]*[0-9]*$' "$work/out")"

# ---- signals reach the ranks
for signal in INT TERM HUP USR1 USR2; do
  : > "$work/out"
  # A shell ignores SIGINT for what it starts in the background.
  env --default-signal=INT "$run" -n 2 sh -c "trap 'echo got; exit 0' $signal; echo ready; while :; do sleep 0.02; done" \
    > "$work/out" 2> /dev/null &
  launcher=$!
  wait_for "$work/out" 2
  kill -$signal $launcher
  wait $launcher
  check "ranks handle $signal" 0 $?
  check "both ranks got $signal" 2 "$(grep -c got "$work/out")"
done

env --ignore-signal=HUP "$run" -n 1 sh -c 'kill -HUP $PPID; sleep 0.3'
check "a signal that was ignored stays ignored, as nohup wants" 0 $?

# ---- killed: the ranks, and what they started, go, and nothing stays behind
: > "$work/pids"
"$run" -n 3 sh -c "echo \$\$ >> $work/pids; sleep 60 & echo \$! >> $work/pids; wait" &
launcher=$!
wait_for "$work/pids" 6
kill -KILL $launcher
wait $launcher 2> /dev/null
check "nobody outlives a killed heddlerun" 0 "$(gone "$work/pids")"
: > "$work/pids"
"$run" -n 2 sh -c "sleep 60 & echo \$! >> $work/pids"
check "nobody outlives the job" 0 "$(gone "$work/pids")"
tries=0
while [ -n "$(ls -A "$TMPDIR")" ] && [ $tries -lt 100 ]; do
  sleep 0.05
  tries=$((tries + 1))
done
check "no file is left" "" "$(ls -A "$TMPDIR")"

[ $failures -eq 0 ] && echo "heddlerun keeps its promises"
exit $((failures > 0))
