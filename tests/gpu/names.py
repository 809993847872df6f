#!/usr/bin/env python3
"""Writes a CUDA file that holds the headers to the tables of names. usage: names.py OUT.cu TABLE.tsv...

Every name that kernels may call becomes a static_assert of its exact type, in host and device passes, and its address in
device code, so that the file compiles only when each has a body."""

import csv
import re
import sys

out, tables = sys.argv[1], sys.argv[2:]
rows = []
for table in tables:
    with open(table, encoding="utf-8") as file:
        rows += [row for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if "D" in row["available"]]


def signature(row):
    """The type of a pointer to it; CUDA's second name of half becomes the first, parameter names go."""
    parameters = [re.sub(r"(?<=[\s*&])\w+$", "", one.strip()).strip() for one in row["parameters"].split(",")]
    if row["parameters"].strip() in ("", "void"):
        parameters = ["void"]
    text = f"{row['returns']} (*)({', '.join(parameters)})"
    return re.sub(r"\bhalf\b", "__half", text)


lines = ["// Made by names.py.", "#include <type_traits>", '#include "nvshmem.h"', '#include "nvshmemx.h"', ""]
lines += [f"static_assert(std::is_same_v<decltype(&{row['name']}), {signature(row)}>);" for row in rows]
lines += ["#if defined(__CUDA_ARCH__)", "__device__ void* names[] = {"]
lines += [f"    reinterpret_cast<void*>(static_cast<{signature(row)}>(&{row['name']}))," for row in rows]
lines += ["};", "#endif"]
with open(out, "w", encoding="utf-8") as file:
    file.write("\n".join(lines) + "\n")
print(f"{len(rows)} names")
