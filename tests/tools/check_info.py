#!/usr/bin/env python3
"""Runs heddle-info in several environments. usage: check_info.py PATH-OF-HEDDLE-INFO PATH-OF-settings.inc"""

import json
import os
import re
import subprocess
import sys

program, table = sys.argv[1:3]
FOREIGN = ("NVSHMEM", "HEDDLE", "PMIX", "PMI_", "SLURM", "OMPI", "PRTE")
clean = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}


def run(*arguments, **variables):
    done = subprocess.run([program, *arguments], env={**clean, **variables}, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def report(**variables):
    code, out, _ = run("--json", **variables)
    return code, json.loads(out)


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


# Every row of the table, in its order, with its default.
names = re.findall(r'(?m)^HEDDLE_SETTING\(\w+, \w+, "(\w+)"', open(table, encoding="utf-8").read())
code, plain = report()
expect(code == 0 and plain["errors"] == [] and plain["warnings"] == [], f"a clean environment: {code} {plain['errors']}")
expect(len(names) > 10 and [row["name"] for row in plain["settings"]] == names, "all settings in the table's order")
expect(all(row["source"] == "default" and row["help"] for row in plain["settings"]), "defaults, each with help")
expect(plain["launcher"] == {"name": "none", "bootstrap": "solo", "usable": True, "reason": ""}, "no launcher")
expect([fabric["name"] for fabric in plain["fabrics"]] == ["cft", "peer", "host", "net"], "fabrics in order")
expect(all(fabric["reason"] for fabric in plain["fabrics"]), "a reason for each fabric")
expect(plain["fabric"] in [fabric["name"] for fabric in plain["fabrics"] if fabric["usable"]], "a usable fabric is chosen")
if plain["topology"]["known"]:
    expect(plain["topology"]["threads"] >= plain["topology"]["cores"] >= 1, "topology")

# The text shows the same: one line per setting, fabrics with reasons, no errors.
code, out, err = run("--settings")
expect(code == 0 and err == "" and [line.split()[0] for line in out.splitlines()] == names, "--settings")
code, out, err = run("--fabrics")
expect(code == 0 and err == "" and len(out.splitlines()) == 4 and "memfd" in out, "--fabrics")
code, out, err = run()
expect(code == 0 and err == "" and "launcher  none" in out and "limit 1G" in out, "overview")
columns = {line.index(word) for line, word in zip(out.splitlines()[1:4], ("CUDA", "none", "limit"))}
expect(columns == {10}, "overview is aligned")

# A value from the environment, and its source.
code, seen = report(NVSHMEM_SYMMETRIC_SIZE="1.5G")
row = next(row for row in seen["settings"] if row["name"] == "NVSHMEM_SYMMETRIC_SIZE")
expect(code == 0 and row["value"] == "1536M" and row["source"] == "environment", f"a given size: {row}")
expect(seen["heap"]["limit"] == 1536 << 20, "heap limit in bytes")

# All malformed values at once, each quoted; the exit status says so.
code, seen = report(HEDDLE_TIMEOUT="abc", NVSHMEM_INFO="maybe")
expect(code == 1 and len(seen["errors"]) == 2, f"two malformed values: {seen['errors']}")
expect(any('HEDDLE_TIMEOUT="abc"' in text for text in seen["errors"]), "the malformed value is quoted")
code, out, err = run("--fabrics", HEDDLE_TIMEOUT="abc")
expect(code == 1 and err.startswith("error: HEDDLE_TIMEOUT"), "errors go to stderr")

# A fabric that does not exist, a fault plan that cannot be read, an unknown name.
code, seen = report(HEDDLE_FABRIC="wool")
expect(code == 1 and any('HEDDLE_FABRIC="wool"' in text for text in seen["errors"]), "unknown fabric")
code, seen = report(HEDDLE_FAULT="fale=7")
expect(code == 1 and any("fale=7" in text for text in seen["errors"]), "unreadable fault plan")
code, seen = report(NVSHMEM_SYMETRIC_SIZE="1G")
expect(code == 0 and len(seen["warnings"]) == 1 and "NVSHMEM_SYMMETRIC_SIZE" in seen["warnings"][0], "nearest name")

# A launcher that cannot work.
code, seen = report(SLURM_PROCID="1", SLURM_STEP_NUM_TASKS="4")
expect(code == 1 and "--mpi=pmix" in seen["launcher"]["reason"], "srun without --mpi=pmix")

code, out, err = run("--json", "--fabrics")
expect(code not in (0, 1), "--json with --fabrics is refused")
print("heddle-info: all expectations held")
