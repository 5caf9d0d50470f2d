#!/usr/bin/env python3
"""Builds the book with mdbook, and checks every link of every page it made.

In, out:  docs/book -> target/book. Files of the repository that pages link to (SPECIFICATION.md, results, designs) are copied to
          target/book/repository, so that the book can be read without the repository.
Invariants: ends with status 1 and a list if a link leads nowhere.
Absent on purpose: links to other sites (tests need no network).
"""
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SOURCE, BUILT = os.path.join(HERE, "src"), os.path.join(ROOT, "target", "book")


def original(page, link):
    """The repository's file that a page's link means; mdbook writes .html for .md."""
    meant = os.path.normpath(os.path.join(SOURCE, os.path.relpath(os.path.dirname(page), BUILT), link))
    for path in (meant, re.sub(r"\.html$", ".md", meant)):
        if os.path.exists(path) and path.startswith(ROOT + os.sep) and not path.startswith(SOURCE):
            return path
    return None


def mend(page, broken):
    with open(page) as file:
        text = file.read()

    def replaced(found):
        link, anchor = (found.group(2).split("#", 1) + [""])[:2]
        if not link or re.match(r"[a-z]+:", link) or os.path.exists(os.path.normpath(os.path.join(os.path.dirname(page), link))):
            return found.group(0)
        path = original(page, link)
        if path is None:
            broken.append(f"{os.path.relpath(page, BUILT)}: {found.group(2)}")
            return found.group(0)
        copy = os.path.join(BUILT, "repository", os.path.relpath(path, ROOT))
        os.makedirs(copy if os.path.isdir(path) else os.path.dirname(copy), exist_ok=True)
        if os.path.isdir(path):
            shutil.copytree(path, copy, dirs_exist_ok=True)
        else:
            shutil.copy(path, copy)
        return f'{found.group(1)}{os.path.relpath(copy, os.path.dirname(page))}{"#" + anchor if anchor else ""}"'

    mended = re.sub(r'((?:href|src)=")([^"]*)"', replaced, text)
    if mended != text:
        with open(page, "w") as file:
            file.write(mended)


def main():
    subprocess.run(["mdbook", "build", HERE, "--dest-dir", BUILT], check=True)
    broken, pages = [], 0
    for folder, _, names in os.walk(BUILT):
        for name in names:
            if name.endswith(".html") and os.path.join(BUILT, "repository") not in folder:
                mend(os.path.join(folder, name), broken)
                pages += 1
    print(f"{pages} pages in {os.path.relpath(BUILT, ROOT)}, {len(broken)} links lead nowhere")
    for line in broken:
        print(f"  {line}")
    return 1 if broken or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
