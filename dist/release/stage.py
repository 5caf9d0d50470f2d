"""What a package of Longhaul holds, and where: one list for .deb, .rpm, the tarball and the image.

In, out:    a binary and the repository -> entries: path, bytes, mode.
Invariants: no time, owner or order of the machine that builds is in an entry, nor in the archives made here.
Absent on purpose: what a kind of package adds (deb.py, rpm.py, oci.py, wheel.py).
"""

import gzip
import io
import lzma
import os
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUMMARY = "moves big files between Linux hosts: encrypted, verified, resumable"
DESCRIPTION = """\
Longhaul moves files from one Linux host's disk to another's at the speed of
the machine and of the path, encrypted and verified. A copy that was cut is
resumed by the same command. It runs through ssh, or to a daemon that this
package brings along and does not start by itself."""
# The same placeholder of a domain as `repository` in Cargo.toml.
MAINTAINER = "Longhaul maintainers <longhaul@example.org>"


@dataclass(frozen=True)
class Entry:
    path: str  # without a slash at its beginning
    data: bytes | None  # None: a folder
    mode: int = 0o644
    is_config: bool = False
    owner: int = 0


@dataclass(frozen=True)
class Release:
    version: str
    commit: str
    epoch: int
    out: Path

    @property
    def date(self) -> str:
        import datetime

        return datetime.datetime.fromtimestamp(self.epoch, datetime.timezone.utc).strftime("%Y-%m-%d")


def read(path: str) -> bytes:
    return (ROOT / path).read_bytes()


def copyright() -> bytes:
    head = b"Longhaul, free software under the Apache License 2.0 or the MIT License, at your option. The libraries that are\n" \
        b"linked in, with their licences, are listed in the SBOM of the release (longhaul-VERSION-ARCHITECTURE.cdx.json).\n"
    return b"\n\n".join([head, read("LICENSE-MIT"), read("LICENSE-APACHE")])


def shrunk(data: bytes) -> bytes:
    """As `gzip -9n`."""
    return gzip.compress(data, 9, mtime=0)


def generated(program: Path) -> dict[str, bytes]:
    """Manual pages and completions, from the program itself: name -> bytes."""
    found = {}
    for what in ("man", "completions"):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([program, "generate", what, folder], check=True, stdout=subprocess.DEVNULL)
            for path in sorted(Path(folder).iterdir()):
                found[path.name] = path.read_bytes()
    return found


# Where each shell looks for the completions of packages.
COMPLETIONS = {
    "longhaul.bash": "usr/share/bash-completion/completions/longhaul",
    "_longhaul": "usr/share/zsh/vendor-completions/_longhaul",
    "longhaul.fish": "usr/share/fish/vendor_completions.d/longhaul.fish",
}
# Files of dist/ -> where systemd looks for those of packages.
SYSTEMD = {
    "longhaul.service": "usr/lib/systemd/system/longhaul.service",
    "longhaul.socket": "usr/lib/systemd/system/longhaul.socket",
    "sysusers.conf": "usr/lib/sysusers.d/longhaul.conf",
    "tmpfiles.conf": "usr/lib/tmpfiles.d/longhaul.conf",
}


def system_entries(binary: bytes, pages: dict[str, bytes]) -> list[Entry]:
    """What .deb and .rpm have in common."""
    entries = [
        Entry("usr/bin/longhaul", binary, 0o755),
        Entry("etc/longhaul/longhaul.toml", read("dist/longhaul.toml"), is_config=True),
        Entry("usr/share/doc/longhaul/copyright", copyright()),
        Entry("usr/share/doc/longhaul/changelog.gz", shrunk(read("CHANGELOG.md"))),
    ]
    entries += [Entry(place, read(f"dist/{name}")) for name, place in SYSTEMD.items()]
    for name, page in pages.items():
        if name.endswith(".1"):
            entries.append(Entry(f"usr/share/man/man1/{name}.gz", shrunk(page)))
        else:
            entries.append(Entry(COMPLETIONS[name], page))
    return sorted(entries, key=lambda entry: entry.path)


def tarball_entries(top: str, binary: bytes, pages: dict[str, bytes]) -> list[Entry]:
    """For whoever installs by hand."""
    entries = [Entry(f"{top}/longhaul", binary, 0o755)]
    for name in ("README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE-APACHE", "LICENSE-MIT"):
        entries.append(Entry(f"{top}/{name}", read(name)))
    for name in ("longhaul.service", "longhaul.socket", "longhaul.toml", "sysusers.conf", "tmpfiles.conf"):
        entries.append(Entry(f"{top}/dist/{name}", read(f"dist/{name}")))
    for name, page in pages.items():
        entries.append(Entry(f"{top}/{'man' if name.endswith('.1') else 'completions'}/{name}", page))
    return sorted(entries, key=lambda entry: entry.path)


def with_folders(entries: list[Entry]) -> list[Entry]:
    """Each folder stands before what is in it."""
    found: dict[str, Entry] = {}
    for entry in entries:
        for folder in reversed(Path(entry.path).parents):
            if str(folder) != ".":
                found.setdefault(str(folder), Entry(str(folder), None, 0o755))
        found[entry.path] = entry
    return list(found.values())


def tar(entries: list[Entry], epoch: int, prefix: str = "") -> bytes:
    """A tar archive, the same bytes each time."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for entry in with_folders(entries):
            info = tarfile.TarInfo(prefix + entry.path)
            info.mtime, info.mode, info.uid, info.gid = epoch, entry.mode, entry.owner, entry.owner
            if entry.data is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                info.size = len(entry.data)
                archive.addfile(info, io.BytesIO(entry.data))
    return out.getvalue()


def xz(data: bytes) -> bytes:
    return lzma.compress(data, preset=6)


def write(path: Path, data: bytes) -> Path:
    """Under its name whole or not at all."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(data)
    os.replace(new, path)
    return path
