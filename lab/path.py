#!/usr/bin/env python3
"""Prints the files of one chunk's way in order, from the tables of ARCHITECTURE.md: lines of each file, and of the function named.

For: a reader who follows one chunk, and whoever keeps that way short. A file is counted once, where it stands first; inline tests are not
counted. `cli/tests/tidy.rs` checks the same tables.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent


def text_of(path):
    """A file without its inline tests."""
    return (ROOT / path).read_text().split("#[cfg(test)]\nmod ")[0]


def function_lines(path, name):
    """Lines from `fn name` to the brace that closes it at the same indent."""
    found = re.search(rf"^( *)[^\n/]*\bfn {name}\b.*?^\1}}$", text_of(path), re.MULTILINE | re.DOTALL)
    return found.group(0).count("\n") + 1 if found else None


def main():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    part = page.split("## The path of one chunk")[1].split("\n## ")[0]
    for title, table in re.findall(r"Over a \*\*(\w+ rail)\*\*.*?\n\n(\| step \| file \| function .*?)\n\n", part, re.DOTALL):
        print(title)
        files, functions = {}, 0
        for row in table.splitlines()[2:]:
            step, file, function = (cell.strip().strip("`") for cell in row.strip("|").split("|")[:3])
            if not function:
                print(f"  {step:16} {file}")
                continue
            again = file in files
            files.setdefault(file, text_of(file).count("\n"))
            lines = function_lines(file, function)
            functions += lines or 0
            print(f"  {step:16} {file:40} {'' if again else files[file]:>6} {function:>16} {lines or 'missing':>7}")
        print(f"  {len(files)} files, {sum(files.values())} lines, {functions} of them in the functions named\n")


main()
