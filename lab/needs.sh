#!/usr/bin/env bash
# Programs that the tests call and a fresh machine may lack: found, installed where that is possible, else named with what stays untested.
#
# In, out:    nothing -> one line for each program that is missing in the end. Status 1 only if the tests cannot run at all without one of them.
#             NEEDS=no installs nothing; NEEDS_OF=arm64: what `make test-arm64` needs. The package manager's own words are in target/needs.log.
# Invariants: installs as root and by apt-get only; starts no service (an sshd of the tests' own is all that they want).
# Absent on purpose: Rust (rustup is the user's), what only benchmarks call (fio, peers), and b3sum: lab/e2e/b3.c is the judge of digests.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
PATH="$PATH:/usr/sbin:/sbin"
export DEBIAN_FRONTEND=noninteractive

# program:package:what needs it
PROGRAMS="
cc:gcc:the build
python3:python3:every end-to-end check
cmp:diffutils:every end-to-end check
ip:iproute2:two hosts, and UDP between them
tc:iproute2:links with queues
nsenter:util-linux:two hosts
setpriv:util-linux:checks without privileges
taskset:util-linux:cores that become fewer
mount:mount:checks on file systems of their own
losetup:mount:checks on file systems of their own
sysctl:procps:host tuning
sshd:openssh-server:far ends over ssh
ssh:openssh-client:far ends over ssh
rsync:rsync:copies by rsync's eyes, and the demo's race
mkfs.btrfs:btrfs-progs:clones, quotas and power cuts
mkfs.ext4:e2fsprogs:disks that die
mkfs.xfs:xfsprogs:power cuts of XFS
unshare:util-linux:power cuts
filefrag:e2fsprogs:clones
iperf3:iperf3:bench wan beside TCP
curl:curl:FTP, in clear and by TLS
lftp:lftp:FTP of whole trees
wget:wget:FTP by wget
ncftpget:ncftp:FTP by ncftp
vsftpd:vsftpd:FTP from and to a server of others
openssl:openssl:that server's certificate
globus-url-copy:globus-gass-copy-progs:FTP by MODE E
xz:xz-utils:the binary compressed on its way over ssh
chromium-headless-shell:chromium-headless-shell:how HTML pages look
"
if [ "${NEEDS_OF:-}" = arm64 ]; then
    PROGRAMS="
cc:gcc:the build
python3:python3:comparing trees
ip:iproute2:a network of their own
qemu-aarch64-static:qemu-user-static:running arm64 programs
aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu libc6-dev-arm64-cross:building them
"
fi
# Any of the browsers that bench/pages/browser.rs knows does.
for program in chromium chromium-browser google-chrome google-chrome-stable chrome; do
    command -v $program >/dev/null && PROGRAMS=$(grep -v '^chromium-headless' <<<"$PROGRAMS")
done

packages() { # of what is missing, each once
    local program package what
    while IFS=: read -r program package what; do
        [ -z "$program" ] || command -v "$program" >/dev/null || tr ' ' '\n' <<<"$package"
    done <<<"$PROGRAMS" | sort -u
}
# install PACKAGE...: nothing that comes with them is started, now or at the next boot.
install() {
    local denied=/usr/sbin/policy-rc.d unit package known=()
    if [ ! -e $denied ]; then
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
        printf '#!/bin/sh\nexit 101\n' >$denied && chmod 755 $denied
    fi
    timeout 240 apt-get update -qq
    # What this distribution does not have must not keep the rest away.
    for package; do
        apt-cache show "$package" >/dev/null && known+=("$package")
    done
    timeout 600 apt-get install -y -qq --no-install-recommends "${known[@]}"
    for package; do
        command -v systemctl >/dev/null || break
        case $package in
        openssh-server) systemctl disable ssh.service ssh.socket ;;
        vsftpd) systemctl disable vsftpd.service ;;
        esac
    done
}

mapfile -t missing < <(packages)
[ ${#missing[@]} = 0 ] && exit 0
mkdir -p target
if [ "${NEEDS:-}" = no ]; then
    why="NEEDS=no"
elif [ "$(id -u)" != 0 ]; then
    why="not root: apt-get install ${missing[*]}"
elif ! command -v apt-get >/dev/null; then
    why="no apt-get here: install ${missing[*]} by hand"
else
    echo "tests need ${missing[*]}: installing"
    (install "${missing[@]}") >target/needs.log 2>&1
    why="apt-get could not: $(grep '^E:' target/needs.log | tail -n 1) (target/needs.log)"
fi
status=0
while IFS=: read -r program _ what; do
    [ -z "$program" ] || command -v "$program" >/dev/null && continue
    echo "missing: $program, for $what ($why)"
    [[ "$program" = cc || "$program" = python3 ]] && status=1
done <<<"$PROGRAMS"
exit $status
