#!/usr/bin/env bash
# The GPU programs under compute-sanitizer: every program with every tool, in small sizes, and what each tool has found.
# usage: sanitize.sh BUILD-FOLDER [TOOL...]   (memcheck racecheck synccheck; COMPUTE_SANITIZER names the program)
# Wants two GPUs and the target gpu_tests. Exit code 0: nothing found; 1: a run failed or something was found; 77: not run.
#
# Programs whose kernels wait for what the host does later are not here: the tools let a launch return when the kernel has
# ended. Neither are those that kill a PE.
set -uo pipefail
build=$(cd "$1" && pwd)
names=$(cd "$(dirname "$0")/../api" && pwd)/host_names.tsv
shift
tools=("$@")
[ $# -gt 0 ] || tools=(memcheck racecheck synccheck)
sanitizer=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)}
if [ ! -x "$sanitizer" ]; then
  echo "skipped: there is no compute-sanitizer; install it or set COMPUTE_SANITIZER"
  exit 77
fi
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export NVSHMEM_SYMMETRIC_SIZE=256M HEDDLE_TIMEOUT=60 HEDDLE_WAIT_TIMEOUT=40
seconds_per_run=60

# Policy of bulk copies, program, arguments.
runs=(
  "DISABLE first_light"
  "DISABLE copies quick"
  "FORCE copies quick smem"
  "FORCE copies quick little-smem"
  "DISABLE types"
  "DISABLE queues"
  "DISABLE order 500"
  "DISABLE host_calls"
  "DISABLE registered use"
  "DISABLE graphs $names"
  "DISABLE failures launch"
)

found_of() { # found_of LOG...: errors and hazards of all PEs, or nothing when a log has no summary
  awk '/(ERROR|RACECHECK) SUMMARY:/ { for (i = 1; i <= NF; ++i) if ($i == "SUMMARY:") { sum += $(i + 1); ++logs } }
    END { if (logs > 0) print sum + 0 }' "$@"
}

bad=0
printf '%-42s %-10s %8s %9s\n' program tool found seconds
for run in "${runs[@]}"; do
  read -r policy program arguments <<<"$run"
  if [ ! -x "$build/tests/gpu/gpu_$program" ]; then
    echo "gpu_$program is not built; make the target gpu_tests"
    exit 77
  fi
  for tool in "${tools[@]}"; do
    # Every kernel in graphs is one of the library's that the others run too; racecheck takes minutes for thousands.
    [ "$program $tool" != "graphs racecheck" ] || continue
    name="$program ${arguments/$names/} ($policy)"
    mine=$logs/${program}_${tool}_$RANDOM
    mkdir "$mine"
    begin=$(date +%s.%N)
    # shellcheck disable=SC2086  # arguments are words
    NVSHMEM_TMA_POLICY=$policy timeout -k 10 "$seconds_per_run" "$build/tools/heddlerun" -n 2 -- "$sanitizer" --tool "$tool" \
      --print-limit 20 --log-file "$mine/%p.log" "$build/tests/gpu/gpu_$program" $arguments >"$mine/output" 2>&1
    code=$?
    took=$(awk -v begin="$begin" -v end="$(date +%s.%N)" 'BEGIN { printf "%.1f", end - begin }')
    if grep -q '^skipped: ' "$mine/output"; then
      grep -m 1 '^skipped: ' "$mine/output"
      exit 77
    fi
    found=$(found_of /dev/null "$mine"/*.log)
    printf '%-42s %-10s %8s %9s' "$name" "$tool" "${found:-none}" "$took"
    if [ "$code" = 0 ] && [ "$found" = 0 ]; then
      echo
      continue
    fi
    bad=1
    if [ "$code" = 124 ]; then
      echo "  FAILED: longer than $seconds_per_run s"
    elif [ "$code" != 0 ]; then
      echo "  FAILED: exit code $code"
    else
      echo "  FAILED"
    fi
    # What was found, each kind once.
    cat "$mine"/*.log 2>/dev/null | sed 's/^=========//' | grep -E 'Error|error|Invalid|hazard|Barrier|returned|    at ' |
      sort | uniq -c | sort -rn | head -12 | sed 's/^/    /'
    grep -E 'FAILED|heddle: .*error|^=========.*rror' "$mine/output" | sort | uniq -c | head -8 | sed 's/^/    /'
  done
done
exit "$bad"
