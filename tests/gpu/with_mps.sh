#!/bin/sh
# Runs a command under a CUDA MPS daemon of its own, and always stops that daemon. Its pipes and logs lie in a temporary
# folder, so that it meets no other daemon. Skips (77) where MPS is not installed or does not start. No GPU setting is
# touched.
# usage: with_mps.sh COMMAND [argument...]
control=nvidia-cuda-mps-control
# For the command. Under ctest less than the test's limit, which would not let us stop the daemon.
seconds=${MPS_TEST_SECONDS:-3600}
folder=
command=

tell() { # tell REQUEST: to the daemon
  echo "$1" | timeout 20 "$control"
}
daemon_lives() {
  pid=$(cat "$folder/pipe/$control.pid" 2>/dev/null) && [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null
}
stop() {
  [ -n "$command" ] && kill "$command" 2>/dev/null && wait "$command" 2>/dev/null
  command=
  [ -n "$folder" ] || return
  if daemon_lives; then
    tell quit >/dev/null 2>&1
    tries=0
    while daemon_lives && [ "$tries" -lt 50 ]; do
      tries=$((tries + 1))
      sleep 0.2
    done
    if daemon_lives; then
      echo "with_mps.sh: the daemon $pid did not end by quit and is killed" >&2
      kill -9 "$pid" 2>/dev/null
    fi
  fi
  rm -rf "$folder"
  folder=
}
skip() { # skip REASON
  echo "skipped: $1"
  [ -n "$folder" ] && tail -n 5 "$folder"/log/*.log 2>/dev/null
  exit 77
}

command -v "$control" >/dev/null 2>&1 || skip "there is no $control"
trap stop EXIT
trap 'exit 143' HUP INT TERM
folder=$(mktemp -d /tmp/heddle-mps.XXXXXX) || exit 1 # short: sockets lie in it
mkdir "$folder/pipe" "$folder/log" || exit 1
export CUDA_MPS_PIPE_DIRECTORY="$folder/pipe" CUDA_MPS_LOG_DIRECTORY="$folder/log"
# Into a file: a pipe would be waited for until the daemon ends.
timeout 20 "$control" -d >"$folder/said" 2>&1 || skip "the MPS daemon does not start: $(cat "$folder/said")"
# The server starts with the first client. Asked for now, its failure is not taken for the program's.
said=$(tell "start_server -uid $(id -u)" 2>&1) || skip "the MPS daemon starts no server: $said"
tries=0
while [ -z "$(tell get_server_list 2>/dev/null)" ]; do
  tries=$((tries + 1))
  [ "$tries" -lt 50 ] || skip "the MPS server does not come up"
  sleep 0.2
done

timeout -k 10 "$seconds" "$@" &
command=$!
wait "$command"
code=$?
command=
if [ "$code" -ne 0 ] && [ "$code" -ne 77 ]; then tail -n 20 "$folder"/log/*.log; fi
exit "$code"
