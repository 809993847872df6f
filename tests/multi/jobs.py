"""Runs jobs of several processes and judges what they left: exit code, time, text, and nothing else.

A test file defines functions test_NAME(jobs) and ends with jobs.main(globals()). CMakeLists.txt makes a ctest test of
each.
"""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

MARK = "TEST_MULTI_MARK"


class Skip(Exception):
    """The test cannot run here; the text says why."""


class Failed(Exception):
    """An expectation that was not met."""


class Result:
    """What a job printed and how it ended."""

    def __init__(self, command, code, output, seconds, ended_at):
        self.command, self.code, self.output, self.seconds, self.ended_at = command, code, output, seconds, ended_at

    def require(self, condition, what):
        if not condition:
            raise Failed(f"{what}\n  command: {' '.join(self.command)}\n  exit code: {self.code}, "
                         f"{self.seconds:.2f} s\n  output:\n" + "".join(f"    {line}\n" for line in self.output.splitlines()))

    def ends_with(self, code):
        """Requires an exit code; "failure" means any but 0."""
        right = self.code != 0 if code == "failure" else self.code == code
        self.require(right, f"expected exit code {code}")
        return self

    def says(self, *texts):
        """Requires that some line holds each text."""
        for text in texts:
            self.require(text in self.output, f"expected a line with: {text}")
        return self

    def never_says(self, *texts):
        for text in texts:
            self.require(text not in self.output, f"expected no line with: {text}")
        return self

    def lines(self, pattern, count):
        """Requires just `count` lines that match the regular expression; returns the matches."""
        found = [match for match in (re.search(pattern, line) for line in self.output.splitlines()) if match]
        self.require(len(found) == count, f"expected {count} lines, found {len(found)}, that match: {pattern}")
        return found

    def cause(self, text, count):
        """Requires that `count` PEs failed in init, and all with just this text."""
        found = [match.group(1) for match in self.lines(r"PE -?\d+: init failed: nvshmem_init: (.*)", count)]
        self.require(all(each == text for each in found), f"expected on every PE: {text}")
        return self


class Jobs:
    """The programs and launchers, and what a test may ask of them."""

    def __init__(self, arguments, folder):
        self.bin, self.heddlerun, self.mpirun = arguments.bin, arguments.heddlerun, arguments.mpirun
        self.sanitized = arguments.sanitized
        self.folder = folder
        self.running = []

    def path(self, program):
        path = os.path.join(self.bin, program)
        if not os.path.exists(path):
            raise Skip(f"{program} was not built")
        return path

    def seconds(self, bar):
        """A bar on time: sanitizers get five times as much."""
        return bar * 5 if self.sanitized else bar

    def launcher(self, name, ranks, options):
        if name == "mpirun":
            if not self.mpirun:
                raise Skip("there is no mpirun here")
            version = subprocess.run([self.mpirun, "--version"], capture_output=True, text=True).stdout
            if "Open MPI" not in version:
                raise Skip(f"{self.mpirun} is not Open MPI's, so it may not speak PMIx")
            return [self.mpirun, "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *options]
        if not self.heddlerun:
            raise Skip("heddlerun was not built")
        return [self.heddlerun, "-n", str(ranks), *options, "--"]

    def run(self, ranks, *program, launcher="heddlerun", options=(), environment=None, limit=60):
        """Runs a job to its end, at most `limit` seconds, and requires that nothing of it is left."""
        command = self.launcher(launcher, ranks, options) + [self.path(program[0]), *map(str, program[1:])]
        return self.start(command, environment).finish(limit)

    def start(self, command, environment=None):
        self.running.append(Running(command, environment or {}, self))
        return self.running[-1]

    def kill(self):
        """Ends what a test that failed or was told to end has left running."""
        for each in self.running:
            each.kill(each.left_processes(0))


class Running:
    """A job in a folder and a session of its own, known by a mark in its environment."""

    def __init__(self, command, environment, jobs):
        self.command = command
        self.mark = uuid.uuid4().hex
        self.temporary = tempfile.mkdtemp(dir=jobs.folder)
        self.shared_before = heddle_names("/dev/shm")
        env = {name: value for name, value in os.environ.items() if not name.startswith(("NVSHMEM_", "HEDDLE_"))}
        env["HEDDLE_FABRIC"] = "host"  # the programs touch the heap with the CPU
        # A test that waits for ever is to say where: no test needs as long as this.
        env.update({"HEDDLE_TIMEOUT": "40", "HEDDLE_WAIT_TIMEOUT": "40", "NVSHMEM_SYMMETRIC_SIZE": "64M",
                    "TMPDIR": self.temporary, MARK: self.mark, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        for name, value in environment.items():
            if value is None:
                env.pop(name, None)
            else:
                env[name] = value
        self.output_file = tempfile.TemporaryFile(dir=jobs.folder)
        self.started = time.monotonic()
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=self.output_file,
                                        stderr=subprocess.STDOUT, start_new_session=True)

    def finish(self, limit=60):
        timed_out = False
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            timed_out = True
        ended = time.monotonic()
        left = self.left_processes(0 if timed_out else 5)
        self.kill(left)
        if timed_out:
            self.process.wait()
        self.output_file.seek(0)
        output = self.output_file.read().decode(errors="replace")
        result = Result(self.command, self.process.returncode, output, ended - self.started, ended)
        result.require(not timed_out, f"still running after {limit} s; killed: {left}")
        result.require(not left, f"processes were left: {left}")
        files = [name for name in os.listdir(self.temporary) if "heddle" in name]
        result.require(not files, f"files were left in TMPDIR: {files}")
        new = heddle_names("/dev/shm") - self.shared_before
        result.require(not new, f"files were left in /dev/shm: {new}")
        return result

    @staticmethod
    def kill(pids):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def left_processes(self, patience):
        """Living processes with the job's mark, once it is sure that they do not just end. A socket that is bound to an
        abstract name lives as long as its processes, so looking for these is looking for those too."""
        end = time.monotonic() + patience
        while True:
            living = [int(name) for name in os.listdir("/proc") if name.isdigit() and self.is_ours(name)]
            if not living or time.monotonic() >= end:
                return living
            time.sleep(0.02)

    def is_ours(self, pid):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return f"{MARK}={self.mark}".encode() in file.read()  # empty for a zombie
        except OSError:
            return False


def heddle_names(folder):
    return {name for name in os.listdir(folder) if "heddle" in name} if os.path.isdir(folder) else set()


def main(names):
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="folder of the test programs")
    parser.add_argument("--heddlerun", default="")
    parser.add_argument("--mpirun", default="")
    parser.add_argument("--sanitized", action="store_true")
    parser.add_argument("test")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = tempfile.mkdtemp(prefix="multi-test-")
    jobs = Jobs(arguments, folder)
    try:
        names["test_" + arguments.test](jobs)
    except Skip as reason:
        print(f"skipped: {reason}")
        return 77
    except Failed as problem:
        print(f"FAILED: {problem}")
        return 1
    finally:
        jobs.kill()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit("jobs.py is a module; run a test_*.py")
