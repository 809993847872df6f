"""Failures on GPUs: every case is one run of gpu_failures or gpu_bad_calls, with its expected words and a bound on time.

Wants two GPUs. Run by ctest (gpu.failures.NAME), or: failures.py --bin BUILD/tests/gpu --heddlerun BUILD/tools/heddlerun NAME
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "multi"))
import jobs as harness  # noqa: E402


def run(jobs, program, *arguments, options=(), limit=60, **environment):
    """One job of two PEs on the fabric that they choose by themselves; prints what it printed."""
    settings = {"HEDDLE_FABRIC": None, "HEDDLE_WAIT_TIMEOUT": "20", "NVSHMEM_SYMMETRIC_SIZE": "256M", **environment}
    result = jobs.run(2, program, *arguments, options=options, environment=settings, limit=limit)
    print(result.output, end="")
    if result.code == 77 or "skipped: " in result.output:
        raise harness.Skip("there are not two GPUs")
    return result


def need_two_gpus(jobs):
    """For programs that cannot say it themselves, as they are to fail in init."""
    said = subprocess.run([jobs.path("gpu_failures"), "count"], capture_output=True, text=True).stdout
    if int(said or 0) < 2:
        raise harness.Skip("there are not two GPUs")


def lost(jobs, where, words):
    result = run(jobs, "gpu_failures", "lost", where, options=["--keep-going"], limit=40)
    match = result.lines(rf"^PE 0: {where} ended after (\d+) ms: {words}", 1)[0]
    result.require(int(match.group(1)) < 1000, "the wait went on for more than a second")
    result.ends_with(137)  # of the PE that was killed; a survivor that fails says so
    result.never_says("FAILED")


def kernel_lost(jobs, where, call):
    lost(jobs, where, rf"kernel: a kernel's {call} \(block 0,0,0, thread \d+,0,0 of grid \d+, .*\): PE 1 was lost while it waited")


def test_lost_in_wait_until(jobs):
    kernel_lost(jobs, "wait_until", "nvshmem_uint64_wait_until")


def test_lost_in_wait_until_any(jobs):
    kernel_lost(jobs, "wait_until_any", "nvshmem_uint64_wait_until_any")


def test_lost_in_signal_wait(jobs):
    kernel_lost(jobs, "signal", "nvshmem_signal_wait_until")


def test_lost_in_counted_wait(jobs):
    kernel_lost(jobs, "counted", "nvshmemx_signal_counted_wait_until")


def test_lost_in_barrier(jobs):
    kernel_lost(jobs, "barrier", "nvshmem_barrier_all")


def test_lost_in_barrier_warp(jobs):
    kernel_lost(jobs, "barrier_warp", "nvshmemx_barrier_all_warp")


def test_lost_in_barrier_block(jobs):
    kernel_lost(jobs, "barrier_block", "nvshmemx_barrier_all_block")


def test_lost_in_stream_wait(jobs):
    kernel_lost(jobs, "stream_wait", "wait_until_on_stream")


def test_lost_in_stream_barrier(jobs):
    kernel_lost(jobs, "stream_barrier", "barrier_all_on_stream")


def test_lost_in_host_wait(jobs):
    lost(jobs, "host", r"nvshmem_uint64_wait_until: .*PE 1 \(pid \d+\) ended without nvshmem_finalize")


def test_lost_in_host_barrier(jobs):
    lost(jobs, "host_barrier", r"nvshmem_barrier_all: .*PE 1 \(pid \d+\) ended without nvshmem_finalize")


def test_bad_calls(jobs):
    result = run(jobs, "gpu_bad_calls", limit=120)
    result.ends_with(0).says("bad_calls: ", " 0 failed").never_says("FAILED")


def test_bad_calls_outside(jobs):
    """Also printed at once, as nobody may ever ask: nine calls, of which the first is recorded, before and after."""
    result = run(jobs, "gpu_bad_calls", "outside")
    result.ends_with(0).says("bad_calls outside: ", " 0 failed").never_says("FAILED")
    result.lines(r"^heddle: error: a kernel's nvshmem_uint64_p \(.*\): called outside init and finalize", 4)


def test_exit_beside_a_failure(jobs):
    """A kernel fails, and calls nvshmem_global_exit(7) before the failure has been read."""
    result = run(jobs, "gpu_bad_calls", "exit")
    result.ends_with(7).never_says("FAILED")
    result.lines(r"kernel: a kernel's nvshmem_int_p \(block 0,0,0, thread 0,0,0 of grid ", 1)


def test_outside(jobs):
    run(jobs, "gpu_failures", "outside").ends_with(0).says("failures outside: ", " 0 failed").never_says("FAILED")


def test_launch(jobs):
    run(jobs, "gpu_failures", "launch").ends_with(0).says("failures launch: ", " 0 failed").never_says("FAILED")


def test_memory(jobs):
    result = run(jobs, "gpu_failures", "memory", limit=120, NVSHMEM_SYMMETRIC_SIZE="16G")
    result.ends_with(0).says("failures memory: ", " 0 failed").never_says("FAILED")
    refusals = [match.group(1) for match in result.lines(r"^PE \d was refused: (.*)", 2)]
    result.require(refusals[0] == refusals[1], "the PEs were told different causes")
    for words in (r"nvshmem_malloc: .*PE 0.*asked \d+ bytes of GPU \d+", r"free are \d+ of \d+", r"block of 8589934592 bytes",
                  r"limit \d+"):
        result.lines(r"^PE 0 was refused: .*" + words, 1)


def test_heap_over_the_gpu(jobs):
    need_two_gpus(jobs)
    result = run(jobs, "gpu_failures", "hello", NVSHMEM_SYMMETRIC_SIZE="1T")
    result.ends_with("failure").lines(r"^PE \d: init failed: nvshmem_init: .*1 TiB is over NVSHMEM_MAX_MEMORY_PER_GPU", 2)
    result = run(jobs, "gpu_failures", "hello", NVSHMEM_SYMMETRIC_SIZE="1T", NVSHMEM_MAX_MEMORY_PER_GPU="2T")
    result.ends_with("failure").lines(r"^PE \d: init failed: nvshmem_init: .*1 TiB is more than this GPU's memory of", 2)


def test_growth(jobs):
    result = run(jobs, "gpu_failures", "growth", NVSHMEM_SYMMETRIC_SIZE="512M", NVSHMEM_CUMEM_GRANULARITY="32M")
    result.ends_with(0).says("failures growth: ", " 0 failed").never_says("FAILED")


def test_hidden_from_each_other(jobs):
    """Each PE sees a GPU of its own only: both are told which GPU is missing where, and what to do."""
    need_two_gpus(jobs)
    result = run(jobs, "gpu_failures", "each-its-own", options=["--keep-going"])
    result.ends_with("failure")
    result.lines(r"^PE \d: init failed: nvshmem_init: .*no fabric reaches PE \d from PE \d: peer: GPU-[0-9a-f-]{36} is not "
                 r"visible to this process; .*CUDA_VISIBLE_DEVICES", 2)


def test_hidden_from_one(jobs):
    """PE 1 sees no GPU and takes host memory, which PE 0 does not."""
    need_two_gpus(jobs)
    result = run(jobs, "gpu_failures", "one-without", options=["--keep-going"])
    result.ends_with("failure")
    result.lines(r"^PE \d: init failed: nvshmem_init: .*PE 1 uses no GPU \(fabric host\) but PE 0 uses one \(fabric peer\); set "
                 r"HEDDLE_FABRIC=host on all PEs, or give every PE a GPU", 2)


def test_hidden_from_all(jobs):
    """No PE sees a GPU: the same program works on host memory."""
    result = run(jobs, "gpu_failures", "all-without")
    result.ends_with(0).lines(r"^PE [01]: hello on host, got [12]$", 2)


if __name__ == "__main__":
    sys.exit(harness.main(globals()))
