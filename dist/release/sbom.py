"""What is in the binary: a software bill of materials, CycloneDX 1.5 as JSON, from cargo's own word and Cargo.lock.

In, out:    the repository, an architecture and its binary -> longhaul-VERSION-ARCHITECTURE.cdx.json (a library may be of one architecture alone)
Invariants: only what is linked in, not what only builds or tests; each library with its version, licence and the checksum of Cargo.lock.
Absent on purpose: what C libraries within a crate consist of (aws-lc-sys is one component).
"""

import json
import re
import subprocess
import tomllib
import uuid
from pathlib import Path

import stage
from stage import Release


def metadata(triple: str) -> dict:
    line = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", triple]
    done = subprocess.run(line, cwd=stage.ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def linked(triple: str) -> set[tuple[str, str]]:
    """Name and version of each package that ends up in the binary. `cargo tree` knows which features are on; `cargo metadata` lists what may be."""
    line = ["cargo", "tree", "--locked", "-p", "longhaul-cli", "--edges", "normal,no-proc-macro", "--target", triple, "--prefix", "none", "--format", "{p}"]
    done = subprocess.run(line, cwd=stage.ROOT, capture_output=True, text=True, check=True)
    words = (line.split() for line in done.stdout.splitlines())
    return {(it[0], it[1].removeprefix("v")) for it in words if it}


def component(package: dict, sums: dict[tuple[str, str], str]) -> dict:
    name, version = package["name"], package["version"]
    said = {"type": "library", "bom-ref": f"{name}@{version}", "name": name, "version": version}
    if package["source"]:
        said["purl"] = f"pkg:cargo/{name}@{version}"
    if package.get("license"):
        said["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if (name, version) in sums:
        said["hashes"] = [{"alg": "SHA-256", "content": sums[name, version]}]
    return said


def from_the_builder(binary: bytes) -> list[dict]:
    """What the linker added that no manifest names: C's library and Rust's own, as the binary itself says."""
    found = []
    if libc := re.search(rb"GNU C Library \([^)]*\) stable release version (\d+\.\d+)", binary):
        found.append({"type": "library", "bom-ref": "glibc", "name": "glibc", "version": libc[1].decode(), "licenses": [{"expression": "LGPL-2.1-or-later"}]})
    if rust := re.search(rb"/rustc/([0-9a-f]{40})/", binary):
        found.append({"type": "library", "bom-ref": "rust-std", "name": "rust-std", "version": rust[1].decode(), "licenses": [{"expression": "MIT OR Apache-2.0"}]})
    return found


def build(release: Release, arch: str, binary: bytes) -> Path:
    triple = f"{arch}-unknown-linux-gnu"
    graph, inside = metadata(triple), linked(triple)
    packages = {it["id"]: it for it in graph["packages"] if (it["name"], it["version"]) in inside}
    uses = {node["id"]: sorted(set(node["dependencies"]) & set(packages)) for node in graph["resolve"]["nodes"] if node["id"] in packages}
    first = next(name for name, it in packages.items() if it["name"] == "longhaul-cli")
    lock = tomllib.loads((stage.ROOT / "Cargo.lock").read_text())
    sums = {(it["name"], it["version"]): it["checksum"] for it in lock["package"] if "checksum" in it}
    ref = lambda name: f"{packages[name]['name']}@{packages[name]['version']}"
    others = sorted((component(packages[name], sums) for name in uses if name != first), key=lambda it: it["bom-ref"])
    whole = {"type": "application", "bom-ref": ref(first), "name": "longhaul", "version": release.version}
    whole["licenses"] = [{"expression": "Apache-2.0 OR MIT"}]
    whole["properties"] = [{"name": "commit", "value": release.commit}]
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'longhaul {release.version} {release.commit} {arch}')}",
        "metadata": {"timestamp": f"{release.date}T00:00:00Z", "component": whole},
        "components": others + from_the_builder(binary),
        "dependencies": sorted(({"ref": ref(name), "dependsOn": [ref(it) for it in its]} for name, its in uses.items()), key=lambda it: it["ref"]),
    }
    return stage.write(release.out / f"longhaul-{release.version}-{arch}.cdx.json", json.dumps(bom, indent=1).encode() + b"\n")
