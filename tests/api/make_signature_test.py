#!/usr/bin/env python3
"""Writes a C++ file that holds the headers to the table of names. usage: make_signature_test.py host_names.tsv OUT.cc

Every row becomes a static_assert of the exact type of the name, and its address, so that the program links only when the
library has them all. The program prints how many there are."""

import csv
import re
import sys

table, out = sys.argv[1:]
with open(table, encoding="utf-8") as file:
    rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def cuda_type(text):
    return re.sub(r"\bhalf\b", "__half", text)  # CUDA's second name of the type


lines = [
    "// Made by make_signature_test.py: one assertion for each name of the API.",
    "#include <cstdio>",
    "#include <type_traits>",
    '#include "heddle.h"',
    '#include "nvshmemx.h"',
    "",
]
for row in rows:
    signature = f"{cuda_type(row['returns'])} (*)({cuda_type(row['parameters'])})"
    lines.append(f"static_assert(std::is_same_v<decltype(&{row['name']}), {signature}>);")
lines += ["", "using Function = void (*)();", "static volatile Function names[] = {"]
lines += [f"    reinterpret_cast<Function>(&{row['name']})," for row in rows]
lines += [
    "};",
    "int main() {",
    "  int failed = 0, passed = 0;",
    "  for (const volatile Function& name : names) name == nullptr ? ++failed : ++passed;",
    '  std::printf("signatures: %d passed, %d failed\\n", passed, failed);',
    f"  return failed == 0 && passed == {len(rows)} ? 0 : 1;",
    "}",
]
with open(out, "w", encoding="utf-8") as file:
    file.write("\n".join(lines) + "\n")
