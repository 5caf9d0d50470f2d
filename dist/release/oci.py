"""A container image as an archive that podman, skopeo, containerd and docker load: image-spec of the Open Container Initiative, 1.0.

In, out:    binaries by architecture -> longhaul-VERSION-oci.tar
Invariants: nothing is in it but the binary, the licence and two folders; it runs as a user without rights; the same bytes each time.
Absent on purpose: a shell, a libc, a registry.
"""

import hashlib
import json
from pathlib import Path

import stage
from stage import Entry, Release

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# A user that no distribution gives out: the one of images that are called "nonroot".
USER = 65532
PORT = 5740


class Blobs:
    """Content by its digest."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def put(self, data: bytes, kind: str) -> dict:
        digest = hashlib.sha256(data).hexdigest()
        self.entries.append(Entry(f"blobs/sha256/{digest}", data))
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}


def as_json(value: dict) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def layer(binary: bytes, epoch: int) -> bytes:
    entries = [
        Entry("usr/bin/longhaul", binary, 0o755),
        Entry("usr/share/doc/longhaul/copyright", stage.copyright()),
        Entry("data", None, 0o750, owner=USER),
        Entry("state", None, 0o700, owner=USER),
        Entry("tmp", None, 0o1777),
    ]
    return stage.tar(entries, epoch)


def config(release: Release, arch: str, plain_layer: bytes) -> dict:
    run = {
        "User": f"{USER}:{USER}",
        "Env": ["PATH=/usr/bin", "LONGHAUL_HOME=/state"],
        "Entrypoint": ["/usr/bin/longhaul"],
        "Cmd": ["serve", "--root", "/data"],
        "Volumes": {"/data": {}, "/state": {}},
        "ExposedPorts": {f"{PORT}/tcp": {}, f"{PORT}/udp": {}},
        "StopSignal": "SIGTERM",
        "WorkingDir": "/data",
        "Labels": {
            "org.opencontainers.image.title": "longhaul",
            "org.opencontainers.image.version": release.version,
            "org.opencontainers.image.revision": release.commit,
            "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
        },
    }
    root = {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(plain_layer).hexdigest()]}
    when = f"{release.date}T00:00:00Z"
    return {"created": when, "architecture": ARCHITECTURES[arch], "os": "linux", "config": run, "rootfs": root, "history": [{"created": when}]}


def image(blobs: Blobs, release: Release, arch: str, binary: bytes) -> dict:
    plain = layer(binary, release.epoch)
    said = blobs.put(as_json(config(release, arch, plain)), "config.v1+json")
    layers = [blobs.put(stage.shrunk(plain), "layer.v1.tar+gzip")]
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": said, "layers": layers}
    about = blobs.put(as_json(manifest), "manifest.v1+json")
    return about | {"platform": {"architecture": ARCHITECTURES[arch], "os": "linux"}}


def build(release: Release, binaries: dict[str, bytes]) -> Path:
    blobs = Blobs()
    manifests = [image(blobs, release, arch, binary) for arch, binary in binaries.items()]
    if len(manifests) > 1:
        # One name for all architectures.
        kind = "application/vnd.oci.image.index.v1+json"
        manifests = [blobs.put(as_json({"schemaVersion": 2, "mediaType": kind, "manifests": manifests}), "index.v1+json")]
    manifests[0]["annotations"] = {"org.opencontainers.image.ref.name": f"longhaul:{release.version}"}
    entries = [
        Entry("oci-layout", as_json({"imageLayoutVersion": "1.0.0"})),
        Entry("index.json", as_json({"schemaVersion": 2, "manifests": manifests})),
        *sorted(blobs.entries, key=lambda entry: entry.path),
    ]
    return stage.write(release.out / f"longhaul-{release.version}-oci.tar", stage.tar(entries, release.epoch))
