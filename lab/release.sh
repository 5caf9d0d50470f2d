#!/usr/bin/env bash
# The files of a release on systems made on the spot: installed, used for a first copy, upgraded while a job runs, removed.
#
# In, out:    BINARY and BINARY_ARM64, static binaries (without the first, both are built); RELEASE_ROOT, a folder with a Debian system (without it debootstrap makes one, once, in
#             target/release-test) -> ok, not ok and skip lines.
# Invariants: what runs, runs in namespaces of this script's own (mounts, network, processes), which end with it; no file outside its folder is written.
#             Nothing passes that was not looked at; what cannot be looked at here is a skip line with the reason.
# Absent on purpose: a running systemd (cli/tests/systemd.rs has its words; here its tools look at the units), packages of arm64 installed on a system of
#             theirs (what is in them is looked at, and the binary is run by qemu-user where that is).
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
source lab/words.sh
PATH="$PATH:/usr/sbin:/sbin"
NEXT=9.9.9 # the version of the upgrade
HERE=$(uname -m)
# What Debian, and container images, call each.
declare -A DEB=([x86_64]=amd64 [aarch64]=arm64)
FILES=(usr/bin/longhaul usr/share/man/man1/longhaul-cp.1.gz usr/share/bash-completion/completions/longhaul usr/lib/systemd/system/longhaul.service
    usr/lib/systemd/system/longhaul.socket usr/lib/sysusers.d/longhaul.conf usr/lib/tmpfiles.d/longhaul.conf usr/share/doc/longhaul/copyright
    usr/share/doc/longhaul/changelog.gz etc/longhaul/longhaul.toml)

# --- outside: packages, and a system to install them on ---

make_releases() { # twice the same, and one that is newer
    local binary=${BINARY:-} commit
    if [ -z "$binary" ]; then
        commit="$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)"
        binary=$(LONGHAUL_COMMIT=$commit dist/release/build.sh "$(uname -m)") || return 1
        # Where it cannot be built the skip line of release.py has less to say than this.
        if [ "$(uname -m)" = x86_64 ] && ! BINARY_ARM64=$(LONGHAUL_COMMIT=$commit dist/release/build.sh aarch64); then
            NO_ARM64=$BINARY_ARM64 BINARY_ARM64=""
        fi
    fi
    export BINARY="$binary" BINARY_ARM64="${BINARY_ARM64:-}" NO_ARM64="${NO_ARM64:-BINARY is given, and BINARY_ARM64 is not}"
    ssh-keygen -q -t ed25519 -N '' -C release -f "$WORK/key" || return 1
    RELEASE_KEY="$WORK/key" RELEASE_OUT="$WORK/one" dist/release/release.py >"$WORK/one.log" || return 1
    RELEASE_OUT="$WORK/again" dist/release/release.py >"$WORK/again.log" || return 1
    RELEASE_VERSION=$NEXT RELEASE_OUT="$WORK/next" dist/release/release.py >"$WORK/next.log"
}
make_root() { # $RELEASE_ROOT: a Debian system; empty: $NO_ROOT says why there is none
    local site
    [ -n "${RELEASE_ROOT:-}" ] && return
    RELEASE_ROOT="$PWD/target/release-test/base"
    [ -e "$RELEASE_ROOT.done" ] && return
    NO_ROOT="there is no debootstrap here (apt-get install debootstrap), and RELEASE_ROOT names no system"
    if command -v debootstrap >/dev/null; then
        # Where this machine has its own packages from.
        site=$(apt-get indextargets --format '$(SITE) $(CODENAME)' 'Created-By: Packages' 2>/dev/null | head -n 1)
        NO_ROOT="debootstrap failed: see target/release-test/debootstrap.log"
        mkdir -p "$RELEASE_ROOT"
        if [ -n "$site" ] && timeout 600 debootstrap --variant=minbase --include=systemd "${site#* }" "$RELEASE_ROOT" "${site% *}" >target/release-test/debootstrap.log 2>&1; then
            touch "$RELEASE_ROOT.done"
            return
        fi
    fi
    RELEASE_ROOT=""
}
outside() {
    [ "$(id -u)" = 0 ] || { skip "packages on a system of their own: not root"; finish; }
    WORK="$(mktemp -d "${TMPDIR:-/tmp}/longhaul-release.XXXXXX")"
    trap 'rm -rf --one-file-system "$WORK"' EXIT
    chmod 755 "$WORK"
    make_releases || { not_ok "the files of a release are made" "$(cat "$WORK"/*.log)"; finish; }
    NO_ROOT=""
    make_root
    export WORK RELEASE_ROOT NO_ROOT
    INSIDE=1 unshare --mount --net --pid --fork --kill-child --propagation private bash lab/release.sh
    exit $?
}

# --- inside ---

LH="" PID="" PIDS=() KIND=none
here() { LONGHAUL_HOME="$WORK/home-$KIND" "$LH" "$@"; }
# lay NAME: $R, a copy of the system that is thrown away, with what a booted one has.
lay() {
    R="$WORK/$1/root"
    mkdir -p "$R" "$WORK/$1/upper" "$WORK/$1/work"
    mount -t overlay overlay -o "lowerdir=$RELEASE_ROOT,upperdir=$WORK/$1/upper,workdir=$WORK/$1/work" "$R" || cp -a "$RELEASE_ROOT/." "$R"
    mount -t proc proc "$R/proc"
    mount --bind /dev "$R/dev"
    cp "$WORK"/{one,next}/*"${DEB[$HERE]}.deb" "$WORK"/{one,next}/*".$HERE.rpm" "$R/root/" 2>/dev/null
    listed "$R" >"$WORK/$1.before"
}
unlay() { umount "$R/proc" "$R/dev" "$R" 2>/dev/null; } # what stays goes with this script's namespaces
# What a package manager writes for itself is not the package's.
listed() { (cd "$1" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./var/lib/dpkg -o -path ./var/lib/rpm -o -path ./var/log -o -path ./var/cache -o -path ./root -o -path ./run -o -path ./tmp \) -prune -o -print | sort); }
# left NAME: what is there now and was not before, but for accounts.
left() { comm -13 "$WORK/$1.before" <(listed "$R") | grep -v '^./etc/\(passwd\|group\|shadow\|gshadow\|subuid\|subgid\)-\?$\|^./etc/.pwd.lock$' | sed 's/^\.//'; }
in_root() { chroot "$R" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
AS_DAEMON=(env -i PATH=/usr/bin LONGHAUL_HOME=/var/lib/longhaul)
as_daemon() { chroot --userspec=longhaul:longhaul "$R" "${AS_DAEMON[@]}" "$@"; }

# serve_there WORDS: the daemon as the unit starts it; $PID.
serve_there() {
    : >"$WORK/out"
    # In place of the shell: its id is the daemon's.
    (exec chroot --userspec=longhaul:longhaul "$R" "${AS_DAEMON[@]}" longhaul serve --config /etc/longhaul/longhaul.toml >"$WORK/out" 2>"$WORK/err") &
    PID=$!
    PIDS+=("$PID")
    if until_true 10 grep -q '^longhaul://' "$WORK/out"; then ok "$1"; else not_ok "$1" "$(cat "$WORK/err")"; fi
}
stop_there() { kill -"${1:-TERM}" "$PID"; wait "$PID" 2>/dev/null; }

# introduced: each side has the other's key, as the book says.
introduced() {
    local words
    words=$(here key show | grep -o 'longhaul-ed25519 .*') && as_daemon longhaul key authorize $words || return 1
    words=$(as_daemon longhaul key show | grep -o 'longhaul-ed25519 [^ ]*') && here key trust 127.0.0.1:5740 $words
}
first_copy() { # first_copy KIND
    holds "$1: keys are exchanged" introduced
    serve_there "$1: the daemon starts as its user, by the config file of the package"
    holds "$1: a first copy" here cp "$WORK/small" longhaul://127.0.0.1/
    holds "$1: it is equal" cmp "$WORK/small" "$R/srv/longhaul/small"
    is "$(in_root stat -c %U /srv/longhaul/small)" longhaul "$1: and the daemon's user has it"
}
upgraded() { # upgraded KIND CMD...: while a job runs
    local kind=$1 job status
    shift
    echo "# a line of the administrator's" >>"$R/etc/longhaul/longhaul.toml"
    here cp --json --rate 80Mbit "$WORK/big" longhaul://127.0.0.1/ >"$WORK/job.json" 2>"$WORK/job.err" </dev/null &
    job=$!
    until_true 20 eval "find '$R/srv/longhaul' -name '.longhaul-*.journal' -size +0 | grep -q ."
    holds "$kind: an upgrade while a job runs" "$@"
    holds "$kind: the job runs on meanwhile" kill -0 "$job"
    holds "$kind: the config file is the administrator's" grep -q "a line of the administrator's" "$R/etc/longhaul/longhaul.toml"
    # What systemd does when the time to drain is over.
    stop_there KILL
    serve_there "$kind: the new daemon starts"
    holds "$kind: it is the new binary" test "$(stat -Lc %i "/proc/$PID/exe")" = "$(stat -c %i "$R/usr/bin/longhaul")"
    wait "$job"
    status=$?
    is "$status" 0 "$kind: the job went on by itself and ends well ($(tail -n 1 "$WORK/job.err" | cut -c1-200))"
    holds "$kind: what it copied is equal" cmp "$WORK/big" "$R/srv/longhaul/big"
    stop_there
}
installed() { # installed KIND
    local file missing=()
    for file in "${FILES[@]}"; do [ -e "$R/$file" ] || missing+=("$file"); done
    is "${missing[*]:-}" "" "$1: all files are there"
    is "$(in_root longhaul --version)" "$(here --version)" "$1: --version"
    is "$(in_root stat -c '%a %U:%G' /srv/longhaul /var/lib/longhaul 2>&1 | tr '\n' ' ')" "750 longhaul:longhaul 700 longhaul:longhaul " "$1: folders of the daemon's user"
    is "$(find "$R/etc/systemd" -name 'longhaul*' 2>/dev/null)" "" "$1: nothing is enabled"
    if in_root systemd-analyze --version >/dev/null 2>&1; then
        is "$(in_root systemd-analyze verify longhaul.service longhaul.socket 2>&1 | grep longhaul | grep -v "Command 'man ")" "" "$1: systemd-analyze has nothing to say of the units"
    else
        skip "$1: units: there is no systemd-analyze"
    fi
}

debian() {
    local one next
    [ -n "$RELEASE_ROOT" ] || { skip ".deb: $NO_ROOT"; return; }
    lay deb
    KIND=deb
    one=$(basename "$WORK"/one/*"_${DEB[$HERE]}.deb") next=$(basename "$WORK"/next/*"_${DEB[$HERE]}.deb")
    holds ".deb: dpkg installs it" in_root dpkg -i "/root/$one"
    installed .deb
    first_copy .deb
    upgraded .deb in_root dpkg -i "/root/$next"
    is "$(in_root dpkg-query -W -f '${Version}' longhaul)" "$NEXT-1" ".deb: the new version is installed"
    # Enabled by the administrator, without a running systemd: a link.
    in_root systemctl enable longhaul.service >/dev/null 2>&1
    holds ".deb: removed" in_root dpkg -r longhaul
    is "$(left deb | grep -v '^/srv/longhaul\|^/var/lib/longhaul\|^/etc/longhaul')" "" ".deb: a removal leaves state and config alone"
    holds ".deb: keys are still there" test -s "$R/var/lib/longhaul/authorized_keys"
    holds ".deb: purged" in_root dpkg -P longhaul
    is "$(left deb | grep -v '^/srv/longhaul')" "" ".deb: a purge leaves what was served alone"
    holds ".deb: which is still there" cmp "$WORK/big" "$R/srv/longhaul/big"
    unlay
}
red_hat() {
    local one next
    compgen -G "$WORK/one/*.$HERE.rpm" >/dev/null || { skip ".rpm: $(grep -h '^skipped the .rpm' "$WORK/one.log")"; return; }
    [ -n "$RELEASE_ROOT" ] || { skip ".rpm: $NO_ROOT"; return; }
    command -v rpm >/dev/null || { skip ".rpm: there is no rpm here"; return; }
    lay rpm
    KIND=rpm
    one=$(echo "$WORK"/one/*".$HERE.rpm") next=$(echo "$WORK"/next/*".$HERE.rpm")
    # Without dependencies: the system is Debian's, and its database knows of no /bin/sh.
    local rpm=(rpm --root "$R" --dbpath /var/lib/rpm --nodeps)
    rpm --root "$R" --dbpath /var/lib/rpm --initdb
    holds ".rpm: rpm installs it" "${rpm[@]}" -i "$one"
    installed .rpm
    first_copy .rpm
    upgraded .rpm "${rpm[@]}" -U "$next"
    is "$(rpm --root "$R" --dbpath /var/lib/rpm -q --qf '%{VERSION}' longhaul)" "$NEXT" ".rpm: the new version is installed"
    in_root systemctl enable longhaul.service >/dev/null 2>&1
    holds ".rpm: removed" "${rpm[@]}" -e longhaul
    is "$(left rpm | grep -v '^/srv/longhaul\|^/var/lib/longhaul\|^/etc/longhaul')" "" ".rpm: a removal leaves state and config alone"
    holds ".rpm: what was served is still there" cmp "$WORK/big" "$R/srv/longhaul/big"
    unlay
}
# unpack ARCHIVE FOLDER ARCHITECTURE: an image as a runtime lays it out, each digest checked; prints its configuration: user, variables, command.
unpack() {
    python3 - "$1" "$2" "${DEB[$3]}" <<'END'
import hashlib, io, json, sys, tarfile
archive = tarfile.open(sys.argv[1])
def blob(about):
    data = archive.extractfile("blobs/sha256/" + about["digest"].split(":")[1]).read()
    assert hashlib.sha256(data).hexdigest() == about["digest"].split(":")[1] and len(data) == about["size"], about
    return data
assert json.load(archive.extractfile("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
about = json.load(archive.extractfile("index.json"))["manifests"][0]
if about["mediaType"].endswith("index.v1+json"):
    about = next(it for it in json.loads(blob(about))["manifests"] if it["platform"]["architecture"] == sys.argv[3])
manifest = json.loads(blob(about))
config = json.loads(blob(manifest["config"]))
assert config["architecture"] == sys.argv[3], config["architecture"]
for layer, plain in zip(manifest["layers"], config["rootfs"]["diff_ids"]):
    tarfile.open(fileobj=io.BytesIO(blob(layer)), mode="r:gz").extractall(sys.argv[2])
run = config["config"]
assert set(run["Volumes"]) == {"/data", "/state"} and set(run["ExposedPorts"]) == {"5740/tcp", "5740/udp"}, run
print(run["User"], *run["Env"], *run["Entrypoint"], *run["Cmd"])
END
}
image() {
    local user line url status word words variables=() command=()
    R="$WORK/image" KIND=image
    mkdir -p "$R"
    line=$(unpack "$WORK"/one/*-oci.tar "$R" "$HERE" 2>&1) || { not_ok "image: it is one" "$line"; return; }
    ok "image: digests, volumes and ports"
    user=${line%% *}
    is "$user" 65532:65532 "image: it runs as a user without rights"
    is "$(find "$R" -type f | sed "s|$R||" | sort | tr '\n' ' ')" "/usr/bin/longhaul /usr/share/doc/longhaul/copyright " "image: the binary and its licence are all there is"
    # As a runtime does it: everything read-only but for the volumes; /proc and /dev of its own.
    mkdir -p "$R/proc" "$R/dev"
    mount --bind "$R" "$R" && mount -o remount,bind,ro "$R"
    mount -t tmpfs -o uid=65532,gid=65532,mode=750 tmpfs "$R/data"
    mount -t tmpfs -o uid=65532,gid=65532,mode=700 tmpfs "$R/state"
    mount -t proc proc "$R/proc" && mount --bind /dev "$R/dev"
    read -ra words <<<"${line#* }"
    for word in "${words[@]}"; do
        if [[ $word == *=* ]]; then variables+=("$word"); else command+=("$word"); fi
    done
    is "$(chroot --userspec="$user" "$R" "${command[0]}" --version 2>&1)" "$(here --version)" "image: --version"
    # What the daemon before it said is not to be taken for this one's address.
    : >"$WORK/out"
    env -i "${variables[@]}" "$(command -v chroot)" --userspec="$user" "$R" "${command[@]}" --ticket >"$WORK/out" 2>"$WORK/err" &
    PID=$!
    if ! until_true 10 grep -q '^longhaul://' "$WORK/out"; then
        not_ok "image: it serves" "$(cat "$WORK/err")"
        return
    fi
    url=$(head -n 1 "$WORK/out")
    url=${url/0.0.0.0/127.0.0.1}
    holds "image: a copy into its volume over TCP" here cp "$WORK/small" "${url}tcp"
    here cp --json --transport udp "$WORK/small" "${url}udp" >"$WORK/udp.json" 2>&1
    holds "image: a copy into its volume over UDP" grep -q '"transport":"udp"' "$WORK/udp.json"
    holds "image: both are equal" eval "cmp '$WORK/small' '$R/data/tcp' && cmp '$WORK/small' '$R/data/udp'"
    holds "image: its key is in the other volume" eval "find '$R/state' -type f | grep -q ."
    kill -TERM "$PID"
    wait "$PID"
    status=$?
    is $status 0 "image: SIGTERM, its stop signal, ends it with 0"
    umount "$R/proc" "$R/dev" "$R/data" "$R/state" "$R"
}
by_pip() {
    if ! python3 -m pip --version >/dev/null 2>&1; then
        skip "wheel: there is no pip here"
        return
    fi
    holds "wheel: pip takes it" python3 -m pip install -q --no-index --no-deps --root-user-action=ignore --prefix "$WORK/pip" "$WORK"/one/*"_$HERE.whl"
    is "$("$(find "$WORK/pip" -path '*bin/longhaul' | head -n 1)" --version)" "$(here --version)" "wheel: --version"
}
by_hand() {
    mkdir "$WORK/hand"
    tar -xzf "$(echo "$WORK"/one/*"-$HERE-linux.tar.gz")" -C "$WORK/hand" --strip-components=1
    is "$("$WORK/hand/longhaul" --version)" "$(here --version)" "tarball: --version"
    holds "tarball: pages, completions, unit, licences" test -s "$WORK/hand/man/longhaul-cp.1" -a -s "$WORK/hand/completions/_longhaul" -a -s "$WORK/hand/dist/longhaul.service" -a -s "$WORK/hand/LICENSE-MIT"
}
signed() {
    holds "SHA256SUMS: of all files" eval "cd '$WORK/one' && sha256sum --quiet -c SHA256SUMS && test \$(wc -l <SHA256SUMS) = \$((\$(ls | wc -l) - 2))"
    is "$(cat "$WORK/again/SHA256SUMS")" "$(cat "$WORK/one/SHA256SUMS")" "the same commit gives the same files"
    echo "release $(cut -d' ' -f1,2 "$WORK/key.pub")" >"$WORK/allowed"
    holds "SHA256SUMS: the signature is the key's" eval "ssh-keygen -q -Y verify -f '$WORK/allowed' -I release -n file -s '$WORK/one/SHA256SUMS.sig' <'$WORK/one/SHA256SUMS'"
    holds "without a key: that is said" grep -q '^unsigned: ' "$WORK/again.log"
    if command -v minisign >/dev/null; then
        minisign -G -W -f -p "$WORK/mini.pub" -s "$WORK/mini.key" >/dev/null 2>&1
        holds "SHA256SUMS: signed by minisign" env RELEASE_KEY="$WORK/mini.key" python3 -B -c 'import sys; sys.path.insert(0, "dist/release"); import sign, pathlib; sign.sign(pathlib.Path(sys.argv[1]))' "$WORK/again/SHA256SUMS"
        holds "SHA256SUMS: minisign finds it good" minisign -V -q -p "$WORK/mini.pub" -m "$WORK/again/SHA256SUMS"
    else
        skip "SHA256SUMS by minisign: there is no minisign here"
    fi
    if compgen -G "$WORK/one/*.cdx.json" >/dev/null; then
        holds "SBOM: of each architecture, this program, its libraries with sums and licences, each once, and what each uses" python3 -c '
import json, sys
for bom in map(json.load, map(open, sys.argv[1:])):
    names = [it["bom-ref"] for it in bom["components"]]
    by = {it["name"]: it for it in bom["components"]}
    assert bom["bomFormat"] == "CycloneDX" and len(set(names)) == len(names) > 40, len(names)
    assert by["rustls"]["hashes"] and by["rustls"]["licenses"] and by["glibc"]["version"], by["rustls"]
    assert "longhaul-node" in by and not {"proptest", "syn", "ring"} & set(by), "what only tests or builds"
    known = set(names) | {bom["metadata"]["component"]["bom-ref"]}
    assert all(it["ref"] in known and set(it["dependsOn"]) <= known for it in bom["dependencies"])
' "$WORK"/one/*.cdx.json
    else
        skip "SBOM: $(grep -h '^skipped the SBOM' "$WORK/one.log")"
    fi
}
# The files for arm64: each says so and has the same binary, which qemu-user runs beside the native one.
arm64() {
    local place="$WORK/arm64" qemu said
    compgen -G "$WORK/one/*-aarch64-linux.tar.gz" >/dev/null || { skip "arm64: $NO_ARM64"; return; }
    [ "$HERE" = x86_64 ] || { skip "arm64: it is this machine's own"; return; }
    mkdir -p "$place"/{image,pip}
    holds "arm64: the tarball is unpacked" tar -xzf "$(echo "$WORK"/one/*-aarch64-linux.tar.gz)" -C "$place" --strip-components=1
    is "$(dpkg-deb -f "$WORK"/one/*_arm64.deb Architecture 2>&1)" arm64 "arm64: the .deb says so"
    holds "arm64: the .deb has that binary" eval "dpkg-deb --fsys-tarfile '$WORK'/one/*_arm64.deb | tar -xO ./usr/bin/longhaul | cmp - '$place/longhaul'"
    if compgen -G "$WORK/one/*.aarch64.rpm" >/dev/null && command -v rpm2cpio >/dev/null && command -v cpio >/dev/null; then
        is "$(rpm -qp --qf '%{ARCH}' "$WORK"/one/*.aarch64.rpm 2>&1)" aarch64 "arm64: the .rpm says so"
        holds "arm64: the .rpm has that binary" eval "rpm2cpio '$WORK'/one/*.aarch64.rpm | cpio -i --quiet --to-stdout ./usr/bin/longhaul | cmp - '$place/longhaul'"
    else
        skip "arm64: .rpm: there is no rpmbuild, rpm2cpio or cpio here"
    fi
    said=$(unpack "$WORK"/one/*-oci.tar "$place/image" aarch64 2>&1)
    holds "arm64: the image has that binary ($said)" cmp "$place/image/usr/bin/longhaul" "$place/longhaul"
    holds "arm64: the wheel has that binary" eval "python3 -m zipfile -e '$WORK'/one/*_aarch64.whl '$place/pip' && cmp '$place'/pip/*.data/scripts/longhaul '$place/longhaul'"
    if ! qemu=$(command -v qemu-aarch64-static); then
        skip "arm64: the binary: there is no qemu-aarch64-static here (apt-get install qemu-user-static)"
    elif ! said=$(lab/arm64/enter.py "$qemu" true 2>&1); then
        skip "arm64: the binary: $(head -n 1 <<<"$said")"
    elif ! lab/arm64/enter.py "$qemu" bash -c 'set -u; source lab/words.sh; source lab/arm64/pair.sh; pairs "$@"; finish' pair "$place/longhaul" "$LH" "$place/pair"; then
        not_ok "arm64: the binary does beside the native one what it should"
    fi
}
inside() {
    trap 'kill "${PIDS[@]}" 2>/dev/null' EXIT
    mount -t proc proc /proc
    ip link set lo up
    LH=$(realpath "$BINARY")
    head -c 300000 /dev/urandom >"$WORK/small"
    head -c 60000000 /dev/urandom >"$WORK/big"
    grep -h '^skipped' "$WORK/one.log" | grep -v aarch64 | sed 's/^skipped/skip/'
    signed
    by_hand
    by_pip
    debian
    red_hat
    image
    arm64
    finish
}

if [ -n "${INSIDE:-}" ]; then inside; else outside; fi
