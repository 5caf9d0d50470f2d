"""A Debian package, written as deb(5) says: an ar archive of three members. No program of Debian's is called.

In, out:    entries of stage.py -> longhaul_VERSION_ARCH.deb
Invariants: the same sources give the same bytes; maintainer scripts are the files of dist/deb as they are.
Absent on purpose: a source package.
"""

import hashlib
from email.utils import formatdate
from pathlib import Path

import stage
from stage import Entry, Release

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
SCRIPTS = ("postinst", "prerm", "postrm")


def member(name: str, data: bytes, epoch: int) -> bytes:
    """Of ar(5): a head of 60 bytes, and the next one begins at an even offset."""
    head = f"{name:<16}{epoch:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
    return head + data + b"\n" * (len(data) % 2)


def changelog(release: Release) -> bytes:
    when = formatdate(release.epoch)
    lines = f"longhaul ({release.version}-1) unstable; urgency=medium\n\n  * Version {release.version}: see changelog.gz.\n"
    return f"{lines}\n -- {stage.MAINTAINER}  {when}\n".encode()


def control(release: Release, arch: str, entries: list[Entry]) -> bytes:
    kib = sum(-(-len(entry.data) // 1024) for entry in entries)
    body = "\n".join(f" {line}" for line in stage.DESCRIPTION.splitlines())
    return (
        f"Package: longhaul\nVersion: {release.version}-1\nArchitecture: {ARCHITECTURES[arch]}\n"
        f"Maintainer: {stage.MAINTAINER}\nInstalled-Size: {kib}\nSuggests: openssh-client, xz-utils\n"
        f"Section: net\nPriority: optional\nDescription: {stage.SUMMARY}\n{body}\n"
    ).encode()


def build(release: Release, arch: str, binary: bytes, pages: dict[str, bytes]) -> Path:
    entries = stage.system_entries(binary, pages)
    entries.append(Entry("usr/share/doc/longhaul/changelog.Debian.gz", stage.shrunk(changelog(release))))
    sums = "".join(f"{hashlib.md5(entry.data).hexdigest()}  {entry.path}\n" for entry in entries if not entry.is_config)
    conffiles = "".join(f"/{entry.path}\n" for entry in entries if entry.is_config)
    about = [Entry(name, stage.read(f"dist/deb/{name}"), 0o755) for name in SCRIPTS]
    about += [Entry("control", control(release, arch, entries)), Entry("md5sums", sums.encode())]
    about.append(Entry("conffiles", conffiles.encode()))
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": stage.xz(stage.tar(about, release.epoch, "./")),
        "data.tar.xz": stage.xz(stage.tar(entries, release.epoch, "./")),
    }
    data = b"!<arch>\n" + b"".join(member(name, data, release.epoch) for name, data in members.items())
    return stage.write(release.out / f"longhaul_{release.version}-1_{ARCHITECTURES[arch]}.deb", data)
