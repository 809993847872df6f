"""How jobs end: nvshmem_global_exit, programs without nvshmem_finalize, PEs that never come, time-outs of waits."""
import re
import sys

import jobs as harness

PLACES = ("barrier", "wait", "malloc", "compute")


def global_exit(jobs, code, launcher, place):
    ranks = 3
    result = jobs.run(ranks, "endings", "global-exit", code, place, launcher=launcher)
    result.ends_with(code)
    match = re.search(r"PE 2: in the middle of something and leaving at ([0-9.]+)", result.output)
    result.require(match, "output before nvshmem_global_exit is lost")
    took = result.ended_at - float(match.group(1))
    result.require(took < jobs.seconds(1), f"everybody was to end within a second; it took {took:.2f} s")
    return result


def test_global_exit_in_barrier(jobs):
    global_exit(jobs, 7, "heddlerun", "barrier")


def test_global_exit_in_wait(jobs):
    global_exit(jobs, 7, "heddlerun", "wait")


def test_global_exit_in_malloc(jobs):
    global_exit(jobs, 7, "heddlerun", "malloc")


def test_global_exit_in_compute(jobs):
    global_exit(jobs, 7, "heddlerun", "compute")


def test_global_exit_with_0(jobs):
    """Not a failure: nobody is told of one, and what the others had printed is there too."""
    for place in PLACES:
        result = global_exit(jobs, 0, "heddlerun", place)
        result.says("PE 0: in the middle of something", "PE 1: in the middle of something")
        result.never_says("error", "warning")


def test_global_exit_mpirun(jobs):
    for place in PLACES:
        result = jobs.run(3, "endings", "global-exit", 7, place, launcher="mpirun")
        result.ends_with(7).says("PE 2: in the middle of something and leaving at")


def test_global_exit_with_0_mpirun(jobs):
    """Open MPI takes a process that ends without farewell for a failure."""
    result = jobs.run(3, "endings", "global-exit", 0, "barrier", launcher="mpirun")
    result.ends_with(0).never_says("improperly")


def test_forked_child(jobs):
    """Its calls are errors, and it hides neither the end of its parent nor the heap from what is printed."""
    jobs.run(2, "forks", "child").ends_with(0)
    for launcher in ("heddlerun", "mpirun"):
        jobs.run(2, "forks", "closed", launcher=launcher).ends_with(0)
    result = jobs.run(2, "forks", "holds", options=["--keep-going"])
    for match in result.lines(r"^PE 0: barrier ended after (\d+) ms: .*PE 1 \(pid \d+\) ended without", 1):
        result.require(int(match.group(1)) < 1000, "the child kept the connection open")


def test_no_finalize(jobs):
    """Everybody returns from main: one warning per PE, and no failure."""
    result = jobs.run(3, "endings", "return")
    result.ends_with(0).lines(r"^heddle: PE \d: warning: PE \d ended without nvshmem_finalize", 3)


def test_no_finalize_of_one(jobs):
    """The others, in nvshmem_finalize, get an error that names it."""
    for one in (0, 1, 2):
        result = jobs.run(3, "endings", "return", one)
        result.ends_with(0)
        result.require(result.seconds < jobs.seconds(5), "the others waited")
        result.lines(rf"^heddle: PE {one}: warning: PE {one} ended without nvshmem_finalize", 1)
        result.lines(rf"^PE [012]: finalize: nvshmem_finalize: .*PE {one} \(pid \d+\) ended without nvshmem_finalize", 2)


def test_late(jobs):
    """A PE that comes after HEDDLE_TIMEOUT: the others give up, and name it."""
    for launcher in ("heddlerun", "mpirun"):
        options = ["--keep-going"] if launcher == "heddlerun" else ["--mca", "orte_enable_recovery", "1"]
        result = jobs.run(3, "endings", "late", 1, 4, launcher=launcher, options=options,
                          environment={"HEDDLE_TIMEOUT": "1"})
        result.lines(r"^PE [02]: init failed: nvshmem_init: exchange of records: .*no record from rank 1\b", 2)
        result.lines(r"^PE 1: init failed: nvshmem_init: ", 1)
        if launcher == "heddlerun":
            result.ends_with(3)  # Open MPI says 0 when it was told to go on


def test_gone_before_init(jobs):
    """A rank that ends before it ever comes to init."""
    for code in (0, 5):
        result = jobs.run(3, "endings", "exit-before", 1, code, options=["--keep-going"],
                          environment={"HEDDLE_TIMEOUT": "3"})
        result.ends_with("failure")
        result.lines(r"^PE [02]: init failed: nvshmem_init: .*(rank|PE) 1\b", 2)


def test_wait_timeout_in_barrier(jobs):
    """HEDDLE_WAIT_TIMEOUT: the waits end in time and name who is missing; the late one does not hang in the end."""
    result = jobs.run(3, "endings", "absent", 1, "barrier", environment={"HEDDLE_WAIT_TIMEOUT": "1"})
    result.ends_with(0)
    for match in result.lines(r"^PE [02]: failed after ([0-9.]+) s: nvshmem_barrier_all: waited 1 s "
                              r"\(HEDDLE_WAIT_TIMEOUT\) for PE 1$", 2):
        result.require(1 <= float(match.group(1)) < jobs.seconds(2), "the barrier was to end after 1 s")


def test_wait_timeout_in_wait(jobs):
    result = jobs.run(3, "endings", "absent", 1, "wait", environment={"HEDDLE_WAIT_TIMEOUT": "1"})
    result.ends_with(0)
    for match in result.lines(r"^PE [02]: failed after ([0-9.]+) s: nvshmem_uint64_wait_until: waited 1 s "
                              r"\(HEDDLE_WAIT_TIMEOUT\) for the value at 0x[0-9a-f]+ to be == 1; it is 0$", 2):
        result.require(1 <= float(match.group(1)) < jobs.seconds(2), "the wait was to end after 1 s")


def test_wait_timeout_in_malloc(jobs):
    result = jobs.run(3, "endings", "absent", 1, "malloc", environment={"HEDDLE_WAIT_TIMEOUT": "1"})
    result.ends_with(0)
    for match in result.lines(r"^PE [02]: failed after ([0-9.]+) s: nvshmem_malloc: PE 1 has not arrived in nvshmem_malloc "
                              r"within 1 s$", 2):
        result.require(1 <= float(match.group(1)) < jobs.seconds(3), "the allocation was to end after 1 s")


if __name__ == "__main__":
    sys.exit(harness.main(globals()))
