"""Joining by nvshmemx_init_attr: a unique id among processes that nobody launched, and MPI communicators."""
import os
import sys

import jobs as harness


def by_id(jobs, ranks, environment=None):
    file = os.path.join(jobs.folder, f"id-{ranks}")
    processes = [jobs.start([jobs.path("by_id"), str(rank), str(ranks), file], environment) for rank in range(ranks)]
    results = [process.finish() for process in processes]
    for result in results:
        result.ends_with(0).never_says("warning")
        result.lines("error: ", 2 if ranks > 1 and result is not results[-1] else 1)  # what it asks to be refused


def test_unique_id(jobs):
    for ranks in (1, 2, 3, 5):
        by_id(jobs, ranks)


def test_unique_id_loopback_ipv6(jobs):
    if not os.path.exists("/proc/net/if_inet6") or "00000000000000000000000000000001" not in open("/proc/net/if_inet6").read():
        raise harness.Skip("loopback has no IPv6 address here")
    by_id(jobs, 3, {"NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY": "AF_INET6", "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "lo"})


def test_unique_id_absent_rank(jobs):
    """One of three never comes: the others give up in time and name it."""
    file = os.path.join(jobs.folder, "id")
    processes = [jobs.start([jobs.path("by_id"), str(rank), "3", file], {"HEDDLE_TIMEOUT": "1"}) for rank in (0, 1)]
    for process in processes:
        result = process.finish()
        result.ends_with(1).lines(r"^heddle: .*error: nvshmemx_init_attr: .*(rank|PE) 2\b", 1)
        result.require(result.seconds < jobs.seconds(5), "it was to give up after HEDDLE_TIMEOUT=1")


def test_mpi(jobs):
    for ranks in (1, 2, 5):
        result = jobs.run(ranks, "by_mpi", launcher="mpirun")
        result.ends_with(0).says("by_mpi: ", ", 0 failed")


if __name__ == "__main__":
    sys.exit(harness.main(globals()))
