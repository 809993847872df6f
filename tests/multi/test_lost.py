"""A PE dies: the survivors say which within a second, wherever they are, and nothing is left behind."""
import sys

import jobs as harness

PLACES = ("barrier", "wait", "malloc", "compute")
MPIRUN_GOES_ON = ["--mca", "orte_enable_recovery", "1"]


def lost(jobs, ranks, place, victims, launcher="heddlerun", options=("--keep-going",)):
    for victim in victims:
        result = jobs.run(ranks, "lost_pe", place, victim, launcher=launcher, options=options)
        if launcher == "heddlerun":
            result.ends_with(137)  # Open MPI says 0 when it was told to go on
        for match in result.lines(r"^PE \d+: returned after (\d+) ms: nvshmem.*" + rf"PE {victim} \(pid \d+\) ended "
                                  "without nvshmem_finalize", ranks - 1):
            result.require(int(match.group(1)) < 1000 * jobs.seconds(1), "a survivor learnt of it too late")


def test_in_barrier(jobs):
    lost(jobs, 3, "barrier", (0, 1, 2))
    lost(jobs, 5, "barrier", (0, 1, 4))


def test_in_wait(jobs):
    lost(jobs, 3, "wait", (0, 1, 2))
    lost(jobs, 5, "wait", (0, 1, 4))


def test_in_malloc(jobs):
    lost(jobs, 3, "malloc", (0, 1, 2))
    lost(jobs, 5, "malloc", (0, 1, 4))


def test_in_compute(jobs):
    lost(jobs, 3, "compute", (0, 1, 2))
    lost(jobs, 5, "compute", (0, 1, 4))


def test_in_growth(jobs):
    """Killed in the middle of the heap's growth, which has waits of its own, here without any time-out."""
    for call in ("allocate:2", "bind:2"):
        for victim in (0, 1, 2):
            result = jobs.run(3, "endings", "grow", options=["--keep-going"],
                              environment={"HEDDLE_FAULT": f"kill={call}@pe={victim}", "HEDDLE_WAIT_TIMEOUT": None})
            result.ends_with(137)
            result.require(result.seconds < jobs.seconds(3), "the survivors waited")
            result.lines(rf"^PE \d: growth failed: nvshmem_malloc: .*PE {victim}\b", 2)


def test_mpirun(jobs):
    for place in PLACES:
        lost(jobs, 3, place, (1,), "mpirun", MPIRUN_GOES_ON)


def test_mpirun_ends_the_job(jobs):
    """Without recovery Open MPI kills the rest; no more than that may happen."""
    jobs.run(3, "lost_pe", "wait", 1, launcher="mpirun").ends_with(137)


def test_in_init(jobs):
    """Killed in each of the fabric calls of init in turn: the others fail in init and name it, or had joined already."""
    for call in range(1, 60):
        result = jobs.run(3, "endings", "hello", options=["--keep-going"],
                          environment={"HEDDLE_FAULT": f"kill={call}@pe=1", "HEDDLE_TIMEOUT": "10"})
        if "hello from PE 1" in result.output:
            break
        result.require(result.seconds < jobs.seconds(2), f"killed in call {call}: the others waited")
        result.ends_with("failure").lines(r"PE 1 \(pid \d+\) was ended by signal 9", 1)
        result.lines(r"^PE [02]: init failed: nvshmem_init: .*(rank|PE) 1\b", 2)
    result.require(10 < call < 59, f"init made {call - 1} fabric calls")


if __name__ == "__main__":
    sys.exit(harness.main(globals()))
