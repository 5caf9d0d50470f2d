"""The sums of a release, and a signature of them by whichever program the key belongs to.

In, out:    files, RELEASE_KEY (a path: an OpenSSH, minisign or signify secret key) -> SHA256SUMS, and SHA256SUMS.sig or .minisig beside it
Invariants: one signature for all files; a key that is named and of no use ends the release.
Absent on purpose: making keys, and keeping them.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import stage

# How each kind of secret key begins, the program that signs with it, and the ending of its signatures.
KINDS = {"-----BEGIN OPENSSH PRIVATE KEY-----": "ssh-keygen", "untrusted comment: minisign": "minisign", "untrusted comment:": "signify"}


def sums(out: Path) -> Path:
    files = sorted(path for path in out.iterdir() if not path.name.startswith("SHA256SUMS"))
    lines = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    return stage.write(out / "SHA256SUMS", lines.encode())


def line_for(program: str, key: str, file: Path) -> tuple[list[str], Path]:
    """The command, and the file that it writes."""
    if program == "ssh-keygen":
        return ["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", "file", str(file)], file.with_name("SHA256SUMS.sig")
    if program == "minisign":
        made = file.with_name("SHA256SUMS.minisig")
        return ["minisign", "-S", "-s", key, "-m", str(file), "-x", str(made), "-t", "longhaul"], made
    made = file.with_name("SHA256SUMS.sig")
    found = next(name for name in ("signify", "signify-openbsd") if shutil.which(name))
    return [found, "-S", "-s", key, "-m", str(file), "-x", str(made)], made


def sign(file: Path) -> Path | None:
    """The signature; None: no key was given."""
    key = os.environ.get("RELEASE_KEY")
    if not key:
        return None
    begins = Path(key).read_text(errors="replace")
    program = next((program for begin, program in KINDS.items() if begins.startswith(begin)), None)
    if program is None:
        raise SystemExit(f"sign with {key}: it is no secret key of OpenSSH, minisign or signify\n  next: name one of these in RELEASE_KEY, or none")
    if not any(shutil.which(name) for name in (program, f"{program}-openbsd")):
        raise SystemExit(f"sign with {key}: there is no {program} here\n  next: install it, or sign SHA256SUMS elsewhere")
    line, made = line_for(program, key, file)
    made.unlink(missing_ok=True)
    if subprocess.run(line).returncode or not made.exists():
        raise SystemExit(f"sign with {key}: {program} failed\n  next: see its words above")
    return made
