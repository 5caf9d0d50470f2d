"""A Python wheel that holds the binary, for whoever installs programs with pip, pipx or uv (PEP 427).

In, out:    a binary -> longhaul-VERSION-py3-none-PLATFORM.whl
Invariants: no Python code is in it; the binary is static, so it runs beside any libc; the same bytes each time.
Absent on purpose: man pages and the unit, which pip has no place for.
"""

import base64
import hashlib
import io
import time
import zipfile
from pathlib import Path

import stage
from stage import Release

# Static: of glibc and of musl the oldest that installers know a name for.
PLATFORMS = "manylinux_2_17_{0}.manylinux2014_{0}.musllinux_1_1_{0}"


def version(release: Release) -> str:
    """As PEP 440 writes it: what follows a `-` or `+` is a local version."""
    return release.version.replace("-", "+", 1)


def build(release: Release, arch: str, binary: bytes) -> Path:
    name, tag = f"longhaul-{version(release)}", f"py3-none-{PLATFORMS.format(arch)}"
    tags = "".join(f"Tag: py3-none-{platform}\n" for platform in PLATFORMS.format(arch).split("."))
    about = (
        f"Metadata-Version: 2.1\nName: longhaul\nVersion: {version(release)}\nSummary: {stage.SUMMARY}\n"
        f"License: Apache-2.0 OR MIT\nClassifier: Operating System :: POSIX :: Linux\nRequires-Python: >=3.7\n"
        f"Description-Content-Type: text/plain\n\n{stage.DESCRIPTION}\n"
    )
    wheel = f"Wheel-Version: 1.0\nGenerator: longhaul-release\nRoot-Is-Purelib: false\n{tags}"
    files = {f"{name}.data/scripts/longhaul": binary}
    files |= {f"{name}.dist-info/{it}": stage.read(it) for it in ("LICENSE-APACHE", "LICENSE-MIT")}
    files |= {f"{name}.dist-info/METADATA": about.encode(), f"{name}.dist-info/WHEEL": wheel.encode()}
    record = "".join(f"{path},sha256={digest(data)},{len(data)}\n" for path, data in files.items())
    files[f"{name}.dist-info/RECORD"] = f"{record}{name}.dist-info/RECORD,,\n".encode()
    return stage.write(release.out / f"{name}-{tag}.whl", zipped(files, release.epoch))


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def zipped(files: dict[str, bytes], epoch: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, data in files.items():
            # A zip's time begins in 1980.
            info = zipfile.ZipInfo(path, max(time.gmtime(epoch)[:6], (1980, 1, 1, 0, 0, 0)))
            info.compress_type, info.create_system = zipfile.ZIP_DEFLATED, 3
            info.external_attr = (0o100755 if ".data/scripts/" in path else 0o100644) << 16
            archive.writestr(info, data)
    return out.getvalue()
