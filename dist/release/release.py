#!/usr/bin/env -S python3 -B
"""All files of a release: `make release`. Says a line for each that was made, and for each that could not be made here, why.

In, out:    the repository; BINARY (and BINARY_ARM64): binaries that are built already, else they are built; RELEASE_KEY -> target/release-VERSION/
            RELEASE_VERSION and RELEASE_OUT are for tests of upgrades.
Invariants: the same commit gives the same bytes, but for signatures; nothing of this machine (paths, names, times) is in them.
            What is missing is skipped and said; what is there and fails ends the run.
Absent on purpose: publishing.
"""

import hashlib
import os
import re
import shutil
import struct
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

import deb
import oci
import rpm
import sbom
import sign
import stage
import wheel
from stage import Release

# ELF's number of each architecture (elf.h, e_machine).
MACHINES = {"x86_64": 62, "aarch64": 183}
# Type of the program header of a binary that asks for a dynamic loader (elf.h, PT_INTERP).
INTERPRETER = 3


def said(*line: str) -> str:
    """What a program prints; empty if it is not there or fails."""
    try:
        done = subprocess.run(line, cwd=stage.ROOT, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def release() -> Release:
    manifest = tomllib.loads((stage.ROOT / "Cargo.toml").read_text())
    version = os.environ.get("RELEASE_VERSION") or manifest["workspace"]["package"]["version"]
    is_ours = said("git", "rev-parse", "--show-toplevel") == str(stage.ROOT)
    commit = os.environ.get("LONGHAUL_COMMIT") or (said("git", "rev-parse", "HEAD")[:12] if is_ours else "") or "unknown"
    if is_ours and "LONGHAUL_COMMIT" not in os.environ and said("git", "status", "--porcelain", "--untracked-files=no"):
        print("note: files differ from the commit: the version says so")
        commit += "+changes"
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or (said("git", "log", "-1", "--format=%ct") if is_ours else "")
    out = Path(os.environ.get("RELEASE_OUT") or stage.ROOT / f"target/release-{version}").absolute()
    return Release(version, commit, int(epoch or 0), out)


def why_not(path: Path, arch: str) -> str | None:
    """Why this file is not a static binary of that architecture."""
    head = path.read_bytes()
    if head[:5] != b"\x7fELF\x02":
        return "it is no 64-bit ELF file"
    (machine,) = struct.unpack_from("<H", head, 18)
    if machine != MACHINES[arch]:
        return f"it is for machine {machine} of elf.h, not for {arch}"
    table, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
    kinds = [struct.unpack_from("<I", head, table + size * number)[0] for number in range(count)]
    return "it asks for a dynamic loader" if INTERPRETER in kinds else None


def built(arch: str, about: Release) -> tuple[Path | None, str]:
    """A binary, or why there is none."""
    variable = {"x86_64": "BINARY", "aarch64": "BINARY_ARM64"}[arch]
    if given := os.environ.get(variable):
        if cause := why_not(Path(given), arch):
            raise SystemExit(f"take {given} ({variable}): {cause}\n  next: name a static binary, or none to have one built")
        return Path(given), ""
    if os.environ.get("BINARY"):
        return None, f"{variable} is not given, and with BINARY nothing is built"
    environment = os.environ | {"LONGHAUL_COMMIT": about.commit, "SOURCE_DATE_EPOCH": str(about.epoch)}
    done = subprocess.run([stage.ROOT / "dist/release/build.sh", arch], env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode == 3:  # build.sh: it cannot be built here
        return None, done.stdout.strip()
    if done.returncode:
        raise SystemExit(f"build for {arch}: cargo failed\n  next: see its words above")
    return Path(done.stdout.strip()), ""


def made(path: Path) -> None:
    print(f"made {path.name} ({path.stat().st_size / 1e6:.1f} MB)", flush=True)


def skipped(what: str, why: str) -> None:
    print(f"skipped {what}: {why}", flush=True)


def packages(about: Release, arch: str, binary: bytes, pages: dict[str, bytes]) -> None:
    top = f"longhaul-{about.version}-{arch}-linux"
    tarball = stage.shrunk(stage.tar(stage.tarball_entries(top, binary, pages), about.epoch))
    made(stage.write(about.out / f"{top}.tar.gz", tarball))
    made(deb.build(about, arch, binary, pages))
    if why := rpm.missing():
        skipped(f"the .rpm for {arch}", why)
    else:
        made(rpm.build(about, arch, binary, pages))
    made(wheel.build(about, arch, binary))


def main() -> None:
    about = release()
    shutil.rmtree(about.out, ignore_errors=True)
    about.out.mkdir(parents=True)
    programs = {}
    for arch in MACHINES:
        program, why = built(arch, about)
        if program:
            programs[arch] = program
        else:
            skipped(f"all files for {arch}", why)
    here = os.uname().machine
    if here not in programs:
        raise SystemExit(f"write man pages: no binary that runs on {here}\n  next: make the release on a machine of an architecture that it is for")
    word = said(str(programs[here].absolute()), "--version")
    print(f"the binary says: {word}")
    # A binary that was given may be of another commit than the files beside it: the image and the SBOM speak of the binary.
    commit = re.search(r"\(commit ([^ ,]+),", word)
    about = replace(about, commit=commit[1] if commit else "unknown")
    pages = stage.generated(programs[here].absolute())
    binaries = {arch: program.read_bytes() for arch, program in programs.items()}
    for arch, binary in binaries.items():
        packages(about, arch, binary, pages)
    made(oci.build(about, binaries))
    if shutil.which("cargo"):
        for arch, binary in binaries.items():
            made(sbom.build(about, arch, binary))
    else:
        skipped("the SBOM", "there is no cargo here to say what is linked in")
    sums = sign.sums(about.out)
    made(sums)
    signature = sign.sign(sums)
    print(f"made {signature.name}" if signature else "unsigned: RELEASE_KEY names no key")
    print(f"all in {about.out}; sha256 of the sums: {hashlib.sha256(sums.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
