# shellcheck shell=bash
# A Slurm of our own for one test, on this machine and without munge. Source it, then call
#
#   start_cluster NODE...   slurmctld and one slurmd per node name; with more than one node each slurmd has its own host
#                           name and /dev/shm, in namespaces. Skips the test (77), saying why, where that cannot be.
#
# All of it is in a private folder, $cluster, and is killed and removed when the script ends, however it ends.

cluster=$(mktemp -d)
cluster_pids=()
failures=0

skip() {
  echo "skipped: $*"
  exit 77
}

stop_cluster() {
  local pid
  for pid in "${cluster_pids[@]}"; do kill -TERM "$pid" 2>/dev/null; done
  for _ in $(seq 50); do
    alive=no
    for pid in "${cluster_pids[@]}"; do kill -0 "$pid" 2>/dev/null && alive=yes; done
    [ $alive = no ] && break
    sleep 0.1
  done
  for pid in "${cluster_pids[@]}"; do kill -KILL "$pid" 2>/dev/null; done
  # Steps that outlived their slurmd are known by the path of their configuration.
  for environment in /proc/[0-9]*/environ; do
    pid=${environment#/proc/} pid=${pid%/environ}
    if [ "$pid" != $$ ] && grep -qzxF "SLURM_CONF=$cluster/slurm.conf" "$environment" 2>/dev/null; then
      kill -KILL "$pid" 2>/dev/null
    fi
  done
  wait 2>/dev/null
  rm -rf "$cluster"
}
trap stop_cluster EXIT
trap 'exit 143' TERM INT

free_ports() {
  python3 - "$1" <<'PY'
import socket, sys
sockets = [socket.socket() for _ in range(int(sys.argv[1]))]
for each in sockets:
    each.bind(("127.0.0.1", 0))
print(*[each.getsockname()[1] for each in sockets])
PY
}

start_cluster() {
  local tool nodes=("$@") ports node
  for tool in slurmctld slurmd srun sinfo scontrol python3; do
    command -v $tool >/dev/null || skip "there is no $tool here"
  done
  [ "$(id -u)" -eq 0 ] || skip "Slurm's daemons need root"
  if [ $# -gt 1 ]; then
    unshare --mount --uts --propagation private sh -c 'hostname other && mount -t tmpfs tmpfs /dev/shm' 2>/dev/null ||
      skip "namespaces of one's own (unshare --mount --uts) are forbidden here"
  fi
  mkdir "$cluster/state"
  # shellcheck disable=SC2207  # words
  ports=($(free_ports $(($# + 1))))
  {
    echo "ClusterName=heddletest
SlurmctldHost=localhost
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort=${ports[0]}
SlurmctldPidFile=$cluster/slurmctld.pid
SlurmdPidFile=$cluster/slurmd-%n.pid
StateSaveLocation=$cluster/state
SlurmdSpoolDir=$cluster/spool-%n
SlurmctldLogFile=$cluster/slurmctld.log
SlurmdLogFile=$cluster/slurmd-%n.log
TmpFS=$cluster/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
MailProg=/bin/true
SlurmdParameters=config_overrides"
    local list=''
    for node in "${nodes[@]}"; do
      ports=("${ports[@]:1}")
      echo "NodeName=$node NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=${ports[0]} CPUs=8 RealMemory=512 State=UNKNOWN"
      list+=${list:+,}$node
      mkdir "$cluster/spool-$node" "$cluster/tmp-$node"
    done
    echo "PartitionName=main Nodes=$list Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES"
  } >"$cluster/slurm.conf"
  export SLURM_CONF=$cluster/slurm.conf

  slurmctld -D -f "$SLURM_CONF" >"$cluster/ctld.out" 2>&1 &
  cluster_pids+=($!)
  for node in "${nodes[@]}"; do
    local daemon=(slurmd -D -f "$SLURM_CONF" -N "$node")
    if [ $# -gt 1 ]; then
      # shellcheck disable=SC2016  # the inner shell expands
      daemon=(unshare --mount --uts --propagation private sh -c
        'hostname "$1" && mount -t tmpfs tmpfs /dev/shm && shift && exec "$@"' - "$node" "${daemon[@]}")
    fi
    "${daemon[@]}" >"$cluster/$node.out" 2>&1 &
    cluster_pids+=($!)
  done
  # Every node idle, which takes some seconds.
  for _ in $(seq 300); do
    if [ "$(sinfo -h -N -o '%T' 2>/dev/null | grep -c '^idle$')" -eq $# ]; then break; fi
    sleep 0.1
  done
  if [ "$(sinfo -h -N -o '%T' 2>/dev/null | grep -c '^idle$')" -ne $# ]; then
    tail -n 5 "$cluster"/*.log "$cluster"/*.out
    echo "FAILED: Slurm did not come up within 30 s"
    exit 1
  fi
  srun --mpi=list 2>&1 | grep -q pmix || skip "this Slurm has no pmix plug-in"
}

# step CODE ARGUMENT...: runs srun with these, at most 60 s, and requires its exit code; its output goes to $output.
step() {
  local expected=$1 code=0
  shift
  output=$cluster/output
  timeout -k 5 60 srun "$@" >"$output" 2>&1 </dev/null || code=$?
  [ "$code" = "$expected" ] || wrong "srun $*: exit code $code instead of $expected"
}

wrong() {
  echo "FAILED: $*"
  sed 's/^/    /' "$output"
  failures=$((failures + 1))
}

# lines COUNT REGEX: just so many lines of the last step's output match.
lines() {
  local found
  found=$(grep -c -E -e "$2" "$output")
  [ "$found" -eq "$1" ] || wrong "$found lines instead of $1 match: $2"
}

finish() {
  [ $failures -eq 0 ] && exit 0
  exit 1
}
