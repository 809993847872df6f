#!/usr/bin/env bash
# One Slurm node: srun --mpi=pmix starts a job, and srun without it is told so. usage: slurm_one_node.sh FOLDER OPERATIONS
set -u
. "$(dirname "${BASH_SOURCE[0]}")/slurm_cluster.sh"
bin=$1 operations=$2
export NVSHMEM_SYMMETRIC_SIZE=64M HEDDLE_TIMEOUT=40 HEDDLE_WAIT_TIMEOUT=40
start_cluster localhost

step 0 --mpi=pmix -n 4 "$bin/crowd" ring
lines 1 '^crowd: 8 passed, 0 failed$'
step 0 --mpi=pmix -n 4 "$bin/random_program" "$operations" 3
lines 1 '^random_program: [0-9]+ passed, 0 failed$'
step 0 --mpi=pmix -n 2 "$bin/cycles" 100
lines 1 '^cycles: [0-9]+ passed, 0 failed$'

# Each task would be a job of its own: init says what to do instead.
step 3 -n 4 "$bin/endings" hello
lines 4 'init failed: nvshmem_init: started by srun without --mpi=pmix: task [0-3] of 4 finds no PMIx server; run "srun --mpi=pmix \.\.\."'
lines 0 'hello'
# A single task without it is a job of one.
step 0 -n 1 "$bin/endings" hello
lines 1 'hello from PE 0 of 1$'

# Killed, and told so by the end of the connection.
step 137 --mpi=pmix --kill-on-bad-exit=0 -n 3 "$bin/lost_pe" barrier 1
lines 2 'returned after [0-9]+ ms: nvshmem_barrier_all: PE 1 \(pid [0-9]+\) ended without nvshmem_finalize'
step 7 --mpi=pmix -n 3 "$bin/endings" global-exit 7 barrier
lines 1 'PE 2: in the middle of something and leaving at'
finish
