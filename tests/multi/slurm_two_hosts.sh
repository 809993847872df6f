#!/usr/bin/env bash
# Two Slurm "hosts": records and control connections cross between them, and since no fabric does in this version, init
# fails on every PE with one cause, which says who cannot reach whom. usage: slurm_two_hosts.sh FOLDER
set -u
. "$(dirname "${BASH_SOURCE[0]}")/slurm_cluster.sh"
bin=$1
export NVSHMEM_SYMMETRIC_SIZE=64M HEDDLE_TIMEOUT=20
start_cluster n1 n2

# The bootstrap alone works across hosts: every byte of every record, and the node map.
step 0 --mpi=pmix -N 2 -n 4 "$bin/boot_probe" ok 2

refused() { # refused PES FIRST-OF-SECOND-HOST
  lines "$1" 'init failed: nvshmem_init: '
  lines 0 'ended without nvshmem_finalize'
  lines "$1" "init failed: nvshmem_init: PE 0: no fabric reaches PE $2 from PE 0: host: PE runs on another node of the launcher's map \(node 1, this is node 0\); the host fabric shares memory of one host only"
}
step 3 --mpi=pmix -N 2 -n 4 --ntasks-per-node=2 "$bin/endings" hello
refused 4 2
printf 'n1\nn1\nn1\nn2\n' >"$cluster/hosts"
step 3 --mpi=pmix -N 2 -n 4 --distribution=arbitrary -w "$cluster/hosts" "$bin/endings" hello
refused 4 3

# One host of the two is as good as any.
step 0 --mpi=pmix -N 1 -n 4 -w n2 "$bin/crowd" ring
lines 1 '^crowd: 8 passed, 0 failed$'
finish
