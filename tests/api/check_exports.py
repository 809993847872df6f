#!/usr/bin/env python3
"""Compares libheddle.so with the table of names. usage: check_exports.py host_names.tsv LIBRARY PROGRAM...

- LIBRARY exports exactly the names of the table.
- LIBRARY needs no CUDA driver, NVML, MPI, libfabric or PMIx: those are opened at run time.
- The PROGRAMs, which are to call every name between them, use exactly the names of the table."""

import csv
import re
import subprocess
import sys

table, library, *programs = sys.argv[1:]
failures = []
with open(table, encoding="utf-8") as file:
    expected = {row["name"] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbols(file, wanted):
    found = set()
    for line in output("nm", "-D", "--no-demangle", file).splitlines():
        kind, name = line.split()[-2:]
        # "A" is the name of the version itself
        if kind in wanted and kind != "A":
            found.add(name.split("@")[0])
    return found


def compare(what, actual):
    for name in sorted(actual - expected):
        failures.append(f"{what} {name}, which the table does not have")
    for name in sorted(expected - actual):
        failures.append(f"no {what} {name}")


# What the headers call on their own account (device/state.h, nvshmemx_launch.h).
INNER = {"heddle_register_unit", "heddle_unregister_unit", "heddle_report_launch", "heddle_admit_launch"}
exported = symbols(library, "TBDRVWiu")
for name in sorted(INNER - exported):
    failures.append(f"no export {name}, which the device headers need")
compare("export", exported - INNER)
used = {name for program in programs for name in symbols(program, "U") if re.match(r"(nvshmemx?|heddle)_", name)}
compare("call of", used)

needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", library))
if not needed:
    failures.append(f"readelf shows no NEEDED entry of {library}")
for name in needed:
    if re.match(r"lib(cuda|nvidia-ml|mpi|pmi|fabric)", name):
        failures.append(f"{library} needs {name}; it must be opened at run time")

for failure in failures:
    print("FAILED:", failure)
print(f"exports: {len(expected)} names, {len(failures)} failed")
sys.exit(1 if failures else 0)
