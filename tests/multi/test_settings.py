"""Wrong settings, from the environment to what every PE says of them: exact texts, the same on all PEs."""
import re
import sys

import jobs as harness

PES = 3


def refused(jobs, text, **environment):
    """All PEs fail in init with this text and leave with the program's code for it."""
    for ranks in (1, PES):
        result = jobs.run(ranks, "endings", "hello", options=["--keep-going"], environment=environment)
        result.ends_with(3).cause(text, ranks)


def test_size_zero(jobs):
    refused(jobs, "PE 0: NVSHMEM_SYMMETRIC_SIZE is 0; give the bytes that each PE may allocate, such as 1G",
            NVSHMEM_SYMMETRIC_SIZE="0")


def test_size_negative(jobs):
    refused(jobs, 'PE 0: NVSHMEM_SYMMETRIC_SIZE="-1" is not a size: a number of bytes, optionally with K, M, G or T; unset it '
            'or give a value such as "1G"', NVSHMEM_SYMMETRIC_SIZE="-1")


def test_size_unknown_unit(jobs):
    for wrong in ("1Q", "1P"):
        refused(jobs, f'PE 0: NVSHMEM_SYMMETRIC_SIZE="{wrong}" is not a size: a number of bytes, optionally with K, M, G '
                'or T; unset it or give a value such as "1G"', NVSHMEM_SYMMETRIC_SIZE=wrong)


def test_size_over_bound(jobs):
    refused(jobs, "PE 0: NVSHMEM_SYMMETRIC_SIZE=1024T is over NVSHMEM_MAX_MEMORY_PER_GPU=256G; lower the one or raise "
            "the other", NVSHMEM_SYMMETRIC_SIZE="1024T")


def test_size_over_memory(jobs):
    result = jobs.run(PES, "endings", "hello", options=["--keep-going"],
                      environment={"NVSHMEM_SYMMETRIC_SIZE": "100T", "NVSHMEM_MAX_MEMORY_PER_GPU": "200T"})
    result.ends_with(3)
    matches = result.lines(r"init failed: (.*)", PES)
    pattern = (r"nvshmem_init: PE 0: NVSHMEM_SYMMETRIC_SIZE=100T is more than this machine's memory of \d+[KMGT]?; "
               "lower it")
    result.require(all(re.fullmatch(pattern, match.group(1)) for match in matches), f"expected on every PE: {pattern}")


def test_granularity(jobs):
    refused(jobs, "PE 0: NVSHMEM_CUMEM_GRANULARITY=3000 is not a power of two of at least 64K",
            NVSHMEM_CUMEM_GRANULARITY="3000")
    refused(jobs, "PE 0: NVSHMEM_CUMEM_GRANULARITY=32K is not a power of two of at least 64K",
            NVSHMEM_CUMEM_GRANULARITY="32K")


def test_bootstrap(jobs):
    refused(jobs, 'NVSHMEM_BOOTSTRAP="foo" is not one of auto, pmix, PMI, solo', NVSHMEM_BOOTSTRAP="foo")


def test_fabric(jobs):
    refused(jobs, 'PE 0: HEDDLE_FABRIC="foo" names no fabric; known are auto, cft, peer, host, net (heddle-info --fabrics '
            "says which can be used)", HEDDLE_FABRIC="foo")


def test_fault(jobs):
    refused(jobs, 'PE 0: HEDDLE_FAULT="foo": item "foo" is none that exists; items are fail=N, fail=METHOD:N, '
            "delay=METHOD:100us, reorder, drop=METHOD:N, kill=N and kill=METHOD:N, each with @pe=K or without",
            HEDDLE_FAULT="foo")


def test_timeout(jobs):
    refused(jobs, 'PE 0: HEDDLE_TIMEOUT="abc" is not a number of seconds that is 0 or more; unset it or give a value such as '
            '"120"', HEDDLE_TIMEOUT="abc")


def test_size_differs(jobs):
    """One PE has another size: all say so, and which."""
    command = jobs.launcher("heddlerun", PES, ["--keep-going"])
    script = 'test "$PMIX_RANK" != 1 || export NVSHMEM_SYMMETRIC_SIZE=32M; exec "$0" hello'
    result = jobs.start(command + ["sh", "-c", script, jobs.path("endings")],
                        {"NVSHMEM_SYMMETRIC_SIZE": "64M", "NVSHMEM_CUMEM_GRANULARITY": "1M"}).finish()
    result.ends_with(3).cause("the heap is 65M in chunks of 1M on PE 0 but 33M in chunks of 1M on PE 1; give every PE the "
                              "same NVSHMEM_SYMMETRIC_SIZE and NVSHMEM_CUMEM_GRANULARITY", PES)


def test_wrong_on_one(jobs):
    """Only one PE's value is malformed: all fail with its cause, and nobody waits for it in vain."""
    command = jobs.launcher("heddlerun", PES, ["--keep-going"])
    script = 'test "$PMIX_RANK" != 1 || export NVSHMEM_SYMMETRIC_SIZE=1Q; exec "$0" hello'
    result = jobs.start(command + ["sh", "-c", script, jobs.path("endings")]).finish()
    result.ends_with(3).cause('PE 1: NVSHMEM_SYMMETRIC_SIZE="1Q" is not a size: a number of bytes, optionally with K, M, G '
                              'or T; unset it or give a value such as "1G"', PES)
    result.require(result.seconds < jobs.seconds(5), "the others waited for a PE that had failed")


def test_failure_of_one_in_init(jobs):
    """What fails on one PE fails on all with its cause, and nobody's orderly end is taken for a loss."""
    for fault in ("bind:1", "import_handle:1"):
        result = jobs.run(PES, "endings", "hello", options=["--keep-going"],
                          environment={"HEDDLE_FAULT": f"fail={fault}@pe=1"})
        result.ends_with(3).never_says("ended without nvshmem_finalize")
        result.lines(r"^PE \d: init failed: nvshmem_init: PE 1: .*fault injected in call 1", PES)


def test_unknown_name(jobs):
    """Warned about once for all PEs, with the nearest known name."""
    result = jobs.run(PES, "endings", "hello", environment={"NVSHMEM_SYMETRIC_SIZE": "1G", "HEDDLE_TIME_OUT": "3"})
    result.ends_with(0).lines(r"^PE \d: hello from PE \d of 3$", PES)
    result.lines(r"^heddle: PE 0: warning: unknown setting NVSHMEM_SYMETRIC_SIZE is ignored; the nearest known name is "
                 "NVSHMEM_SYMMETRIC_SIZE$", 1)
    result.lines(r"^heddle: PE 0: warning: unknown setting HEDDLE_TIME_OUT is ignored; the nearest known name is "
                 "HEDDLE_TIMEOUT$", 1)
    result.lines(r"warning", 2)


def test_rank_without_launcher(jobs):
    """Half of a launcher's environment is an error, not a job of one."""
    result = jobs.start([jobs.path("endings"), "hello"], {"PMIX_RANK": "0"}).finish()
    result.ends_with(3).cause("PMIX_RANK is set in the environment but PMIX_NAMESPACE is not: start the program by a "
                              "launcher that speaks PMIx, or unset PMIX_RANK to run as one process", 1)


if __name__ == "__main__":
    sys.exit(harness.main(globals()))
