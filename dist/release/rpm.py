"""An RPM package, by rpmbuild.

In, out:    entries of stage.py -> longhaul-VERSION-1.ARCH.rpm
Invariants: nothing is compiled, stripped or changed on the way; no time or name of the machine that builds is in it.
Absent on purpose: a source package; macros of one distribution.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import stage
from stage import Entry, Release


def missing() -> str | None:
    return None if shutil.which("rpmbuild") else "there is no rpmbuild here (Debian: apt-get install rpm; Fedora: dnf install rpm-build)"


def lay(entries: list[Entry], root: Path, epoch: int) -> None:
    for entry in stage.with_folders(entries):
        place = root / entry.path
        if entry.data is None:
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.write_bytes(entry.data)
        place.chmod(entry.mode)
        os.utime(place, (epoch, epoch))


# Folders that are ours, or that a system without that shell has from us alone: several packages may have one.
FOLDERS = ["etc/longhaul", "usr/share/doc/longhaul", "usr/share/fish", "usr/share/fish/vendor_completions.d", "usr/share/zsh"]
FOLDERS += ["usr/share/zsh/site-functions", "usr/share/bash-completion", "usr/share/bash-completion/completions"]


def files(entries: list[Entry]) -> str:
    """The %files list."""
    lines = [f"%dir /{folder}" for folder in FOLDERS]
    for entry in entries:
        mark = "%config(noreplace) " if entry.is_config else ""
        lines.append(f"{mark}/{entry.path}")
    return "\n".join(lines)


def build(release: Release, arch: str, binary: bytes, pages: dict[str, bytes]) -> Path:
    # The folder that zsh of Fedora and SUSE looks into; Debian's has another name.
    place = lambda path: path.replace("zsh/vendor-completions", "zsh/site-functions")
    entries = [Entry(place(it.path), it.data, it.mode, it.is_config) for it in stage.system_entries(binary, pages)]
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        lay(entries, top / "staged", release.epoch)
        words = {"VERSION": release.version.replace("-", "~"), "SUMMARY": stage.SUMMARY, "DESCRIPTION": stage.DESCRIPTION}
        words |= {"STAGED": str(top / "staged"), "FILES": files(entries)}
        spec = stage.read("dist/longhaul.spec").decode()
        for word, text in words.items():
            spec = spec.replace(f"@{word}@", text)
        (top / "longhaul.spec").write_text(spec)
        defines = {"_topdir": folder, "_buildhost": "localhost", "use_source_date_epoch_as_buildtime": "1", "clamp_mtime_to_source_date_epoch": "1"}
        line = ["rpmbuild", "-bb", "--quiet", "--target", f"{arch}-linux"]
        line += [word for name, value in defines.items() for word in ("--define", f"{name} {value}")]
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(release.epoch)}
        done = subprocess.run([*line, top / "longhaul.spec"], env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"rpmbuild: {done.stderr.strip()}")
        (made,) = top.glob("RPMS/*/*.rpm")
        return stage.write(release.out / made.name, made.read_bytes())
