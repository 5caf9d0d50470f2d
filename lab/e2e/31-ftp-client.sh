#!/usr/bin/env bash
# FTP: `longhaul cp` and `sync` from and to servers of others: vsftpd where it is (root), in clear and by TLS with required session reuse, and our own.
# INTEROP=full fetches ProFTPD, Pure-FTPd, pyftpdlib and GridFTP as well (as root, by apt-get, unpacked here and not installed), and tries those.
source "$(dirname "$0")/check.sh"

export LONGHAUL_HOME=$LAB/ftp-client-home
mkdir -p "$LONGHAUL_HOME" "$LAB/ftp-home"
chmod 700 "$LONGHAUL_HOME" "$LAB/ftp-home"
same() { if cmp -s "$1" "$2"; then ok "$3"; else not_ok "$3" "$1 and $2 differ"; fi; }
same_tree() { if diff -r "$1" "$2" >"$LAB/diff" 2>&1; then ok "$3"; else not_ok "$3" "$(head -3 "$LAB/diff")"; fi; }
went() { if [ "$1" = 0 ]; then ok "$3"; else not_ok "$3" "exit $1: $(grep -a -v '^  ' "$2" | head -4)"; fi; }
nothing_of_ours() { is "$(find "$1" -name '.longhaul-*' -o -name '.lh-upload-*' | wc -l)" 0 "$2"; }

# What is moved: names with blanks, quotes, UTF-8 and 0xFF, an empty file, one in ranges.
TREE=$SRC/tree
mkdir -p "$TREE/a folder/deep" "$TREE/empty folder"
random_file "$TREE/large" 100000000
random_file "$TREE/a folder/one" 3000000
for number in $(seq 60); do head -c $((number * 100)) "$TREE/large" >"$TREE/a folder/deep/small $number"; done
: >"$TREE/empty"
printf x >"$TREE/quo\"te ü"
printf y >"$TREE/"$'ff\xff'
find "$TREE" -exec touch -d '2026-01-02 03:04:05' {} +

# round NAME ADDRESS FOLDER OPTIONS: a server that shows FOLDER at ADDRESS: there and back, and again.
round() {
    local name=$1 at=$2 folder=$3
    shift 3
    "$LONGHAUL" cp "$@" "$TREE/." "$at/up/" >"$LAB/$name-put" 2>&1
    went $? "$LAB/$name-put" "$name: a tree is put"
    same_tree "$TREE" "$folder/up" "$name: it is the same"
    nothing_of_ours "$folder" "$name: and nothing else stands there"
    "$LONGHAUL" cp "$@" "$at/up" "$DST/$name" >"$LAB/$name-get" 2>&1
    went $? "$LAB/$name-get" "$name: a tree is got"
    same_tree "$TREE" "$DST/$name" "$name: what came is the same"
    nothing_of_ours "$DST/$name" "$name: and nothing else stands here"
    is "$(stat -c %Y "$DST/$name/large")" "$(stat -c %Y "$TREE/large")" "$name: its time is kept"
    is "$(grep -c 'far side unread:\|far side was asked' "$LAB/$name-get")" 1 "$name: the report says whether the far side was asked"
    "$LONGHAUL" cp "$@" --json "$at/up" "$DST/$name" >"$LAB/$name-again" 2>&1
    is "$(grep '"event":"done"' "$LAB/$name-again" | grep -o '"files":[0-9]*')" '"files":0' "$name: a second run moves nothing"
    # Killed in the middle: no file under its name, and the next run brings what is missing.
    rm -f "$DST/$name-large"
    "$LONGHAUL" cp "$@" --rate 40MB/s "$at/up/large" "$DST/$name-large" >/dev/null 2>&1 &
    local client=$!
    until_true 20 eval "ls '$DST'/.longhaul-*.part >/dev/null 2>&1"
    sleep 1
    kill -9 $client
    wait $client 2>/dev/null
    if [ -e "$DST/$name-large" ]; then not_ok "$name: a get that was killed leaves no file"; else ok "$name: a get that was killed leaves no file"; fi
    "$LONGHAUL" cp "$@" --json "$at/up/large" "$DST/$name-large" >"$LAB/$name-on" 2>&1
    same "$TREE/large" "$DST/$name-large" "$name: the next run has it"
    local came
    came=$(grep '"event":"done"' "$LAB/$name-on" | grep -o '"bytes":[0-9]*' | head -1 | cut -d: -f2)
    if [ "${came:-0}" -gt 0 ] && [ "$came" -lt 95000000 ]; then ok "$name: and brings what is missing"; else not_ok "$name: and brings what is missing" "$came"; fi
    # sync --delete, both ways.
    printf extra >"$DST/$name/extra"
    "$LONGHAUL" sync "$@" --delete "$at/up" "$DST/$name" >"$LAB/$name-sync" 2>&1
    same_tree "$TREE" "$DST/$name" "$name: sync --delete from it"
    printf extra >"$folder/up/extra"
    "$LONGHAUL" sync "$@" --delete "$TREE" "$at/up" >"$LAB/$name-sync-to" 2>&1
    same_tree "$TREE" "$folder/up" "$name: sync --delete to it"
}

if command -v vsftpd >/dev/null && command -v openssl >/dev/null && [ "$(id -u)" = 0 ]; then
    ROOT=$DST/root-vsftpd
    mkdir -p "$ROOT/up" "$LAB/vsftpd-empty"
    chmod 755 "$ROOT"
    chmod 777 "$ROOT/up"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=localhost -keyout "$LAB/vsftpd.pem" \
        -out "$LAB/vsftpd.crt" 2>/dev/null
    cat "$LAB/vsftpd.crt" >>"$LAB/vsftpd.pem"
    cat >"$LAB/vsftpd.conf" <<C
listen=YES
listen_address=127.0.0.1
listen_port=2191
anonymous_enable=YES
anon_root=$ROOT
anon_upload_enable=YES
anon_mkdir_write_enable=YES
anon_other_write_enable=YES
anon_umask=022
write_enable=YES
mdtm_write=YES
no_anon_password=YES
background=NO
secure_chroot_dir=$LAB/vsftpd-empty
seccomp_sandbox=NO
C
    vsftpd "$LAB/vsftpd.conf" >"$LAB/vsftpd.out" 2>&1 &
    VSFTPD=$!
    sed 's/^listen_port=.*/listen_port=2192/' "$LAB/vsftpd.conf" >"$LAB/vsftpd-tls.conf"
    cat >>"$LAB/vsftpd-tls.conf" <<C
ssl_enable=YES
allow_anon_ssl=YES
force_anon_data_ssl=YES
force_anon_logins_ssl=YES
rsa_cert_file=$LAB/vsftpd.pem
rsa_private_key_file=$LAB/vsftpd.pem
require_ssl_reuse=YES
ssl_ciphers=HIGH
C
    vsftpd "$LAB/vsftpd-tls.conf" >"$LAB/vsftpd-tls.out" 2>&1 &
    VSFTPD_TLS=$!
    sleep 1
    round vsftpd ftp://127.0.0.1:2191 "$ROOT" --allow-clear
    rm -rf "$ROOT/up"
    mkdir -m 777 "$ROOT/up"
    "$LONGHAUL" cp ftp://127.0.0.1:2191/up/x "$DST/x" >"$LAB/clear" 2>&1
    is $? 14 "vsftpd without TLS: refused"
    "$LONGHAUL" cp ftp://127.0.0.1:2192/up/x "$DST/x" >"$LAB/stranger" 2>&1
    is $? 11 "vsftpd by TLS: a certificate that nobody vouches for is refused"
    FINGERPRINT=$(openssl x509 -in "$LAB/vsftpd.crt" -noout -fingerprint -sha256 | cut -d= -f2)
    is "$(grep -c "ftp-fingerprint $FINGERPRINT" "$LAB/stranger")" 1 "and the next step has its fingerprint"
    round vsftpd-tls ftp://127.0.0.1:2192 "$ROOT" --ftp-fingerprint "$FINGERPRINT"
    kill $VSFTPD $VSFTPD_TLS
    wait $VSFTPD $VSFTPD_TLS 2>/dev/null
else
    skip "vsftpd" "it is not installed, or this is not root"
fi

# Others, from their packages.
OTHER=$LAB/other
# unpack PACKAGE...: their files below $OTHER; nothing is installed, and packages that exclude each other stand side by side.
unpack() {
    mkdir -p "$OTHER/packages"
    (cd "$OTHER/packages" && apt-get download "$@") >>"$LAB/apt" 2>&1
    local package
    for package in "$OTHER"/packages/*.deb; do dpkg -x "$package" "$OTHER" >>"$LAB/apt" 2>&1; done
}
LIBRARIES=LD_LIBRARY_PATH=$OTHER/usr/lib/$(uname -m)-linux-gnu
# server NAME PORT COMMAND...: starts it; false, and a skipped row, if it does not listen.
server() {
    local name=$1 port=$2
    shift 2
    env "$LIBRARIES" "$@" >"$LAB/$name.out" 2>&1 &
    SERVER=$!
    until_true 10 python3 -c "import socket; socket.create_connection(('127.0.0.1', $port), 1)" 2>/dev/null && return 0
    skip "$name" "it does not start: $(tail -1 "$LAB/$name.out")"
    return 1
}
end() { kill "$SERVER" && wait "$SERVER" 2>/dev/null; }
place() {
    ROOT=$DST/root-$1
    mkdir -p "$ROOT/up"
    chown -R nobody "$ROOT"
    chmod 755 "$DST" "$ROOT"
}
others() {
    chmod 755 "$LAB" "$DST"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=localhost -keyout "$LAB/key.pem" -out "$LAB/crt.pem" 2>/dev/null
    cat "$LAB/key.pem" "$LAB/crt.pem" >"$LAB/both.pem"
    printf secret >"$LAB/secret"
    chmod 600 "$LAB/secret" "$LAB/both.pem"
    local tls=(--password-file "$LAB/secret" --ftp-fingerprint "$(openssl x509 -in "$LAB/crt.pem" -noout -fingerprint -sha256 | cut -d= -f2)")
    local clear=(--password-file "$LAB/secret" --allow-clear)
    unpack proftpd-core proftpd-mod-crypto libmemcached11 libmemcachedutil2 libhashkit2 libhiredis0.14 libpcre2-posix3 pure-ftpd pure-ftpd-common libsodium23
    place proftpd
    cat >"$LAB/proftpd.conf" <<C
ModulePath $OTHER/usr/lib/proftpd
LoadModule mod_tls.c
LoadModule mod_digest.c
ServerType standalone
Port 2194
DefaultAddress 127.0.0.1
SocketBindTight on
PidFile $LAB/proftpd.pid
ScoreboardFile $LAB/proftpd.score
DelayTable none
SystemLog $LAB/proftpd.log
User nobody
Group nogroup
AuthOrder mod_auth_file.c
AuthUserFile $LAB/proftpd.passwd
RequireValidShell off
UseReverseDNS off
DefaultRoot ~
AllowOverwrite on
AllowStoreRestart on
WtmpLog off
TransferLog none
TLSEngine on
TLSLog $LAB/proftpd.tls
TLSECCertificateFile $LAB/crt.pem
TLSECCertificateKeyFile $LAB/key.pem
C
    printf 'ada:%s:65534:65534::%s:/bin/sh\n' "$(openssl passwd -6 secret)" "$ROOT" >"$LAB/proftpd.passwd"
    chmod 600 "$LAB/proftpd.passwd"
    if server proftpd 2194 "$OTHER/usr/sbin/proftpd" -n -q -c "$LAB/proftpd.conf"; then
        round proftpd ftp://ada@127.0.0.1:2194 "$ROOT" "${clear[@]}"
        rm -rf "$ROOT/up"
        round proftpd-tls ftp://ada@127.0.0.1:2194 "$ROOT" "${tls[@]}"
        if grep -q 'the far side was asked: ' "$LAB/proftpd-tls-get"; then ok "proftpd by TLS: its digest of every file is compared"; else not_ok "proftpd by TLS: its digest of every file is compared" "$(cat "$LAB/proftpd-tls-get")"; fi
        end
    fi
    place pure
    printf 'secret\nsecret\n' | env "$LIBRARIES" "$OTHER/usr/bin/pure-pw" useradd ada -f "$LAB/pure.passwd" -u 65534 -g 65534 -d "$ROOT" >>"$LAB/apt" 2>&1
    env "$LIBRARIES" "$OTHER/usr/bin/pure-pw" mkdb "$LAB/pure.pdb" -f "$LAB/pure.passwd" >>"$LAB/apt" 2>&1
    if server pure-ftpd 2195 "$OTHER/usr/sbin/pure-ftpd" -H -S 127.0.0.1,2195 -E -u 1 -D -z -Y 1 -2 "$LAB/both.pem" -l "puredb:$LAB/pure.pdb" -g "$LAB/pure.pid"; then
        round pure-ftpd ftp://ada@127.0.0.1:2195 "$ROOT" "${clear[@]}"
        rm -rf "$ROOT/up"
        round pure-ftpd-tls ftp://ada@127.0.0.1:2195 "$ROOT" "${tls[@]}"
        end
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q python3-pyftpdlib python3-openssl >>"$LAB/apt" 2>&1
    place pyftpdlib
    cat >"$LAB/py-server.py" <<C
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import TLS_FTPHandler
from pyftpdlib.servers import FTPServer
handler = TLS_FTPHandler
handler.authorizer = DummyAuthorizer()
handler.authorizer.add_user("ada", "secret", "$ROOT", perm="elradfmwMT")
handler.certfile, handler.keyfile = "$LAB/crt.pem", "$LAB/key.pem"
# Names that are no UTF-8 are not sayable by it else.
handler.unicode_errors = "surrogateescape"
FTPServer(("127.0.0.1", 2196), handler).serve_forever()
C
    if server pyftpdlib 2196 /usr/bin/python3 "$LAB/py-server.py"; then
        round pyftpdlib ftp://ada@127.0.0.1:2196 "$ROOT" "${clear[@]}"
        rm -rf "$ROOT/up"
        round pyftpdlib-tls ftp://ada@127.0.0.1:2196 "$ROOT" "${tls[@]}"
        end
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends globus-gridftp-server-progs >>"$LAB/apt" 2>&1
    place gridftp
    if server gridftp 2198 globus-gridftp-server -aa -anonymous-user nobody -anonymous-names-allowed '*' -home-dir "$ROOT" -p 2198 -control-interface 127.0.0.1 \
        -data-interface 127.0.0.1; then
        # It takes names of ASCII only.
        rm "$TREE/"$'ff\xff' "$TREE/quo\"te ü"
        round gridftp "ftp://127.0.0.1:2198/$ROOT" "$ROOT" --allow-clear
        end
    fi
}
if [ "${INTEROP:-}" = full ] && [ "$(id -u)" = 0 ] && type -P apt-get >/dev/null && command -v openssl >/dev/null; then
    others
fi

# Our own server.
ROOT=$DST/root-own
mkdir -p "$ROOT/up"
LONGHAUL_HOME=$LAB/ftp-home "$LONGHAUL" ftp serve --listen 127.0.0.1:2193 --root "$ROOT" --user ada >"$LAB/own.out" 2>"$LAB/own.err" &
DOOR=$!
until_true 20 grep -q '^file manager' "$LAB/own.out"
sed -n 's/^password of ada, said once: //p' "$LAB/own.out" >"$LAB/own.password"
chmod 600 "$LAB/own.password"
FINGERPRINT=$(sed -n 's/^certificate SHA-256 \([0-9A-F:]*\).*/\1/p' "$LAB/own.out")
round own ftp://ada@127.0.0.1:2193 "$ROOT" --plain-ftp --ftp-fingerprint "$FINGERPRINT" --password-file "$LAB/own.password"
# What a receipt says, read from the server: a copy to this host, whose folder the server shows.
mkdir "$LAB/v"
cp -a "$TREE/." "$LAB/v/"
ln -s large "$LAB/v/link"
LONGHAUL_HOME=$LAB/ftp-home "$LONGHAUL" cp --receipt "$LAB/receipt" "$LAB/v/." "$ROOT/checked/" >/dev/null 2>&1
verify() { "$LONGHAUL" verify --ftp-fingerprint "$FINGERPRINT" --password-file "$LAB/own.password" "$LAB/receipt" "$@" >"$LAB/verified" 2>&1; }
verify ftp://ada@127.0.0.1:2193/checked
is $? 0 "verify reads a tree from the server"
is "$(grep -c 'all as the receipt says' "$LAB/verified")" 1 "and says that it is as the receipt says"
is "$(grep -c 'cannot be seen through FTP: 1 ' "$LAB/verified")" 1 "and how many links were not seen"
verify ftp://ada@127.0.0.1:2193/checked/large
is $? 0 "one file of it too"
printf Z | dd of="$ROOT/checked/a folder/one" bs=1 seek=1234567 conv=notrunc 2>/dev/null
rm "$ROOT/checked/empty"
printf more >>"$ROOT/checked/large"
verify ftp://ada@127.0.0.1:2193/checked
is $? 40 "what is damaged, gone or longer is found"
is "$(grep -c 'a folder/one: DIFFERS: same length' "$LAB/verified")" 1 "a byte that turned"
is "$(grep -c 'empty: MISSING' "$LAB/verified")" 1 "a file that is gone"
is "$(grep -c 'large: DIFFERS: it is 100000004 B long' "$LAB/verified")" 1 "a file that is longer"
printf wrong >"$LAB/wrong.password"
chmod 600 "$LAB/wrong.password"
"$LONGHAUL" cp --password-file "$LAB/wrong.password" ftp://ada@127.0.0.1:2193/up/empty "$DST/x" >"$LAB/wrong" 2>&1
is $? 12 "a wrong password is refused"
is "$(grep -c 'the server refused it: 530' "$LAB/wrong")" 1 "with the server's words"
kill $DOOR
wait $DOOR 2>/dev/null
finish
