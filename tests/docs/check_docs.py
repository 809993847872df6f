#!/usr/bin/env python3
"""Compares the documentation with the code. usage: check_docs.py SOURCE-FOLDER [--update]

- README.md shows examples/ring.cc as it is.
- The settings table of docs/user-guide.md is that of runtime/settings.inc; --update writes it.
- Files and folders that the Markdown files name in backticks or link to exist, when they have a slash or a known ending.
- Top-level folders with sources have a README.md.
"""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
update = "--update" in sys.argv[2:]
failures = []


def settings_table():
    text = (root / "runtime/settings.inc").read_text(encoding="utf-8")
    lines = ["| name | kind | default | meaning |", "|---|---|---|---|"]
    row = r'(?ms)^HEDDLE_SETTING\(\w+, (\w+), "(\w+)", "([^"]*)",\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\)$'
    for kind, name, fallback, pieces in re.findall(row, text):
        meaning = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', pieces)).replace("|", "\\|")
        default = f"`{fallback}`" if fallback else "empty"
        lines.append(f"| `{name}` | {kind} | {default} | {meaning} |")
    expected = len(re.findall(r"(?m)^HEDDLE_SETTING\(", text))
    if len(lines) - 2 != expected:
        failures.append(f"only {len(lines) - 2} of {expected} rows of runtime/settings.inc could be read")
    return "\n".join(lines)


def check_example():
    readme = (root / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?s)```cpp\n(.*?)```", readme)
    if (root / "examples/ring.cc").read_text(encoding="utf-8") not in blocks:
        failures.append("README.md does not show examples/ring.cc as it is")


def check_settings():
    guide = root / "docs/user-guide.md"
    text = guide.read_text(encoding="utf-8")
    marked = re.search(r"(?s)<!-- settings -->\n(.*?)\n<!-- end of settings -->", text)
    if not marked:
        failures.append("docs/user-guide.md has no marked settings table")
    elif marked.group(1) != settings_table():
        if update:
            guide.write_text(text[: marked.start(1)] + settings_table() + text[marked.end(1) :], encoding="utf-8")
        else:
            failures.append("the settings table of docs/user-guide.md is old: run tests/docs/check_docs.py . --update")


def check_names():
    for page in sorted(root.glob("**/*.md")):
        if page.relative_to(root).parts[0].startswith(("build", "install")):
            continue
        text = re.sub(r"(?s)```.*?```", "", page.read_text(encoding="utf-8"))
        where = page.relative_to(root)
        for target in re.findall(r"\]\(([^)#:]+)[^):]*\)", text):
            if not (page.parent / target).exists():
                failures.append(f"{where} links to {target}, which does not exist")
        for name in re.findall(r"`([\w./-]+)`", text):
            is_path = re.fullmatch(r"(bootstrap|cmake|device|docs|examples|heap|include|perftest|runtime|scripts|tests|tools)/\S+", name)
            if is_path and not (root / name).exists():
                failures.append(f"{where} names {name}, which does not exist")


def check_readmes():
    for folder in sorted({path.relative_to(root).parts[0] for path in root.glob("*/**/*.*")}):
        if folder.startswith((".", "build", "install")) or folder == "sweep-results":
            continue
        if (root / folder / "CMakeCache.txt").exists():  # somebody's build
            continue
        readme = root / folder / "README.md"
        if not readme.exists():
            failures.append(f"{folder}/ has no README.md")


check_example()
check_settings()
check_names()
check_readmes()
for failure in failures:
    print(f"FAILED: {failure}")
if failures:
    sys.exit(1)
print("documentation matches")
