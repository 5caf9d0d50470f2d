#!/usr/bin/env bash
# FTP: real clients against `longhaul ftp serve`: curl, Python's ftplib, lftp, wget and ncftp where they are, in clear and by TLS 1.2 and 1.3; and what is
# refused, each with its code. INTEROP=full installs the clients that are missing (as root, by apt-get).
source "$(dirname "$0")/check.sh"

if [ "${INTEROP:-}" = full ] && [ "$(id -u)" = 0 ] && [ "${NEEDS:-}" != no ]; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q curl lftp wget ncftp rclone tnftp >"$LAB/apt" 2>&1
fi
ROOT=$DST/ftp FTP_PORT=2190
FTP_ADDRESS=127.0.0.1
mkdir -p "$ROOT" "$LAB/ftp-home"
chmod 700 "$LAB/ftp-home"
random_file "$SRC/one" 3000000
: >"$SRC/empty"

# door OPTIONS: a server on this host; PASSWORD is that of ada, who can write.
door() {
    LONGHAUL_HOME=$LAB/ftp-home "$LONGHAUL" ftp serve --listen "$FTP_ADDRESS:$FTP_PORT" --user ada,reader:ro --clear 127.0.0.1 \
        "$@" >"$LAB/ftp.out" 2>"$LAB/ftp.err" &
    DOOR=$!
    until_true 20 grep -q '^file manager' "$LAB/ftp.out"
    [ -s "$LAB/ftp.password" ] || sed -n 's/^password of ada, said once: //p' "$LAB/ftp.out" >"$LAB/ftp.password"
    [ -s "$LAB/ftp.reader" ] || sed -n 's/^password of reader, said once: //p' "$LAB/ftp.out" >"$LAB/ftp.reader"
    PASSWORD=$(<"$LAB/ftp.password") READER=$(<"$LAB/ftp.reader")
}
shut() {
    kill "$@" "$DOOR" 2>/dev/null
    wait "$DOOR" 2>/dev/null
}
same() { if cmp -s "$1" "$2"; then ok "$3"; else not_ok "$3" "$1 and $2 differ"; fi; }
AT=ftp://$FTP_ADDRESS:$FTP_PORT

door --root "$ROOT"
is "$(head -1 "$LAB/ftp.out")" "ftps://ada@$FTP_ADDRESS:$FTP_PORT/" "the first line is the address"
is "$(grep -c '^certificate SHA-256 \([0-9A-F]\{2\}:\)\{31\}' "$LAB/ftp.out")" 1 "the second has the fingerprint"

if command -v curl >/dev/null; then
    for way in clear 1.2 1.3; do
        cover=(--ssl-reqd -k --tls-max "$way" "--tlsv$way")
        [ "$way" = clear ] && cover=()
        C=(curl -sS "${cover[@]}" -u "ada:$PASSWORD")
        "${C[@]}" -T "$SRC/one" "$AT/curl-$way" 2>>"$LAB/curl"
        same "$SRC/one" "$ROOT/curl-$way" "curl, $way: pushed"
        "${C[@]}" -o "$DST/back-$way" "$AT/curl-$way" 2>>"$LAB/curl"
        same "$SRC/one" "$DST/back-$way" "curl, $way: pulled"
        "${C[@]}" -T "$SRC/empty" "$AT/empty-$way" 2>>"$LAB/curl"
        same "$SRC/empty" "$ROOT/empty-$way" "curl, $way: an empty file"
        head -c 1000000 "$SRC/one" >"$DST/part-$way"
        "${C[@]}" -C - -o "$DST/part-$way" "$AT/curl-$way" 2>>"$LAB/curl"
        same "$SRC/one" "$DST/part-$way" "curl, $way: a pull goes on"
    done
    # A ticket of TLS 1.3 is good for one of them, and curl closes before the next one is there: it offers TLS 1.2 as well, and gets that.
    mkdir -p "$SRC/forty"
    for name in $(seq 40); do head -c $((name * 1000)) "$SRC/one" >"$SRC/forty/$name"; done
    (cd "$SRC/forty" && curl -sS --ssl-reqd -k -u "ada:$PASSWORD" --ftp-create-dirs -T "{$(seq -s, 40)}" "$AT/forty/") >>"$LAB/curl" 2>&1
    if diff -r "$SRC/forty" "$ROOT/forty" >>"$LAB/curl" 2>&1; then ok "curl: forty files pushed in one command"; else not_ok "curl: forty files pushed in one command" "$(tail -2 "$LAB/curl")"; fi
    # curl waits for a timer, up to a second for each file, where a data port is named before it looks. The best of three: a busy machine has its own waits.
    mkdir -p "$ROOT/twenty"
    for name in $(seq 20); do printf '%s' "$name" >"$ROOT/twenty/$name"; done
    best=99999
    for turn in 1 2 3; do
        began=$(date +%s%N)
        curl -sS -u "ada:$PASSWORD" -o "$DST/twenty-$turn-#1" "$AT/twenty/[1-20]" 2>>"$LAB/curl"
        took=$((($(date +%s%N) - began) / 1000000))
        [ "$took" -lt "$best" ] && best=$took
    done
    is "$(cat "$DST"/twenty-3-* | wc -c)" 31 "curl: twenty files in one command"
    holds "curl: twenty files in one command take $best ms" [ "$best" -lt 2000 ]
    pasted=$(sed -n 's/^curl: *//p' "$LAB/ftp.out")
    is "$(eval "${pasted/-u ada/-sS -u ada:$PASSWORD}" | grep -c curl-1.3)" 1 "the line for curl works when it is pasted"

    # Killed in the middle: nothing under the name, and the next push sends what is missing.
    random_file "$SRC/large" 200000000
    C=(curl -sS --ssl-reqd -k -u "ada:$PASSWORD")
    "${C[@]}" --limit-rate 40M -T "$SRC/large" "$AT/large" 2>>"$LAB/curl" &
    client=$!
    sleep 2
    kill -9 $client
    wait $client 2>/dev/null
    if [ -e "$ROOT/large" ]; then not_ok "a client that was killed leaves no file"; else ok "a client that was killed leaves no file"; fi
    sent=$("${C[@]}" -C - -T "$SRC/large" -w '%{size_upload}' "$AT/large" 2>>"$LAB/curl")
    same "$SRC/large" "$ROOT/large" "the next push goes on"
    if [ "${sent:-0}" -gt 0 ] && [ "$sent" -lt 180000000 ]; then ok "and sends what is missing"; else not_ok "and sends what is missing" "$sent"; fi
    # The same of the server.
    rm -f "$ROOT/large"
    "${C[@]}" --limit-rate 40M -T "$SRC/large" "$AT/large" 2>>"$LAB/curl" &
    client=$!
    sleep 2
    shut -9
    wait $client 2>/dev/null
    if [ -e "$ROOT/large" ]; then not_ok "a server that was killed leaves no file"; else ok "a server that was killed leaves no file"; fi
    door --root "$ROOT"
    sent=$("${C[@]}" -C - -T "$SRC/large" -w '%{size_upload}' "$AT/large" 2>>"$LAB/curl")
    same "$SRC/large" "$ROOT/large" "the next server's push goes on"
    if [ "${sent:-0}" -gt 0 ] && [ "$sent" -lt 180000000 ]; then ok "and sends what is missing there"; else not_ok "and sends what is missing there" "$sent"; fi
    is "$(find "$ROOT" -name '.longhaul-*' | wc -l)" 0 "and nothing else stands there"

    truncate -s 5G "$SRC/sparse"
    curl -sS -u "ada:$PASSWORD" -T "$SRC/sparse" "$AT/sparse" 2>>"$LAB/curl"
    is "$(stat -c %s "$ROOT/sparse" 2>/dev/null)" 5368709120 "5 GiB of zeros, pushed"
    if [ "$(stat -c %b "$ROOT/sparse" 2>/dev/null || echo 9999999)" -lt 100000 ]; then ok "and they are a hole"; else not_ok "and they are a hole"; fi
    is "$(curl -sS -u "ada:$PASSWORD" "$AT/sparse" 2>>"$LAB/curl" | wc -c)" 5368709120 "5 GiB, pulled"

    code() { curl -sv "$@" 2>&1 | grep -a '^< [45]' | tail -1 | cut -c3-5; }
    is "$(code -u ada:wrong "$AT/")" 530 "a wrong password"
    is "$(code -u "reader:$READER" -T "$SRC/one" "$AT/no")" 550 "a user who may only read"
    is "$(code -u "ada:$PASSWORD" "$AT/nothing")" 550 "a file that is not there"
    is "$(code -u "ada:$PASSWORD" -T "$SRC/one" "$AT/none/no")" 550 "a folder that is not there"
    shut
    if [ "$(id -u)" = 0 ] && mkdir -p "$LAB/small" && mount -t tmpfs -o size=1m none "$LAB/small" 2>/dev/null; then
        door --root "$LAB/small"
        is "$(code -u "ada:$PASSWORD" -T "$SRC/one" "$AT/full")" 452 "a full disk"
        is "$(find "$LAB/small" -type f | wc -l)" 0 "which stays full of nothing"
        shut
        umount "$LAB/small"
    else
        skip "a full disk" "no file system of its own can be mounted"
    fi
    python3 -c 'import socket,time; s=socket.socket(); s.bind(("127.0.0.1",2191)); s.listen(); time.sleep(60)' &
    taken=$!
    sleep 0.3
    door --root "$ROOT" --passive-ports 2191-2191
    is "$(code -u "ada:$PASSWORD" "$AT/")" 425 "no port for data"
    shut
    kill $taken
    FTP_ADDRESS=127.0.0.2 AT=ftp://127.0.0.2:$FTP_PORT
    door --root "$ROOT"
    is "$(code --interface 127.0.0.2 -u "ada:$PASSWORD" "$AT/")" 530 "in clear from a network that was not named"
    shut
    FTP_ADDRESS=127.0.0.1 AT=ftp://127.0.0.1:$FTP_PORT
    door --root "$ROOT"
else
    skip "curl" "it is not installed"
fi

cat >"$LAB/client.py" <<'END'
import ftplib, io, ssl, sys
port, password, way = int(sys.argv[1]), sys.argv[2], sys.argv[3]
class Reuse(ftplib.FTP_TLS):
    def ntransfercmd(self, cmd, rest=None):
        conn, size = ftplib.FTP.ntransfercmd(self, cmd, rest)
        return (self.context.wrap_socket(conn, server_hostname=self.host, session=self.sock.session), size)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
ftp = ftplib.FTP(encoding="latin-1") if way == "clear" else Reuse(context=context, encoding="latin-1")
ftp.connect("127.0.0.1", port, 20)
ftp.login("ada", password)
if way != "clear":
    ftp.prot_p()
for passive in (True, False):
    ftp.set_pasv(passive)
    for name in ("a b", 'q"uote', "x'y", "\xff\xfe", "n\xc3\xa4me"):
        bytes_ = b"hello " + name.encode("latin-1") * 5000
        ftp.storbinary("STOR " + name, io.BytesIO(bytes_))
        got = io.BytesIO()
        ftp.retrbinary("RETR " + name, got.write)
        assert got.getvalue() == bytes_ and ftp.size(name) == len(bytes_)
        assert name in ftp.nlst() and name in [it for it, _ in ftp.mlsd()]
        ftp.delete(name)
ftp.mkd('d "q"')
ftp.cwd('d "q"')
assert ftp.pwd() == '/d "q"', ftp.pwd()
ftp.cwd("..")
ftp.rmd('d "q"')
for bad in ("STOR a\rb", "STOR a\0b"):
    ftp.sock.sendall(bad.encode() + b"\r\n")
    assert ftp.getline().startswith("553"), bad
print("well")
END
for way in clear tls; do
    is "$(python3 "$LAB/client.py" "$FTP_PORT" "$PASSWORD" "$way" 2>"$LAB/client.err" | tail -1)" well "Python's ftplib, $way: $(tail -1 "$LAB/client.err")"
done

if command -v lftp >/dev/null; then
    mkdir -p "$SRC/tree/in"
    cp "$SRC/one" "$SRC/tree/in/a b"
    cp "$SRC/one" "$SRC/tree/c"
    pasted=$(sed -n "s/^lftp: *//p" "$LAB/ftp.out")
    pasted=${pasted/-u ada/-u ada,$PASSWORD}
    eval "${pasted/ no\'/ no; set net:max-retries 2; mirror -R $SRC/tree lftp; mirror -P4 lftp $DST/lftp; exit\'}" >"$LAB/lftp" 2>&1
    if diff -r "$SRC/tree" "$ROOT/lftp" >>"$LAB/lftp" 2>&1; then ok "lftp, the line that is pasted: a tree pushed"; else not_ok "lftp: a tree pushed" "$(tail -2 "$LAB/lftp")"; fi
    if diff -r "$SRC/tree" "$DST/lftp" >>"$LAB/lftp" 2>&1; then ok "lftp: a tree pulled, four at once"; else not_ok "lftp: a tree pulled" "$(tail -2 "$LAB/lftp")"; fi
    # Only TLS 1.3: it closes an upload when it has read one thing behind its own last word.
    eval "${pasted/ no\'/ no; set ssl:priority NORMAL:-VERS-ALL:+VERS-TLS1.3; set net:max-retries 2; mirror -R $SRC/tree lftp-1.3; exit\'}" >"$LAB/lftp" 2>&1
    if diff -r "$SRC/tree" "$ROOT/lftp-1.3" >>"$LAB/lftp" 2>&1; then ok "lftp, TLS 1.3: a tree pushed"; else not_ok "lftp, TLS 1.3: a tree pushed" "$(tail -2 "$LAB/lftp")"; fi
else
    skip "lftp" "it is not installed"
fi
cp "$SRC/one" "$ROOT/one"
if command -v wget >/dev/null; then
    wget -q -O "$DST/wget" "ftp://ada:$PASSWORD@$FTP_ADDRESS:$FTP_PORT/one"
    same "$SRC/one" "$DST/wget" "wget: pulled"
else
    skip "wget" "it is not installed"
fi
if command -v ncftpget >/dev/null; then
    mkdir -p "$DST/ncftp"
    ncftpget -u ada -p "$PASSWORD" -P "$FTP_PORT" "$FTP_ADDRESS" "$DST/ncftp" one >"$LAB/ncftp" 2>&1
    same "$SRC/one" "$DST/ncftp/one" "ncftp: pulled"
    cp "$SRC/one" "$DST/ncftp-up"
    ncftpput -u ada -p "$PASSWORD" -P "$FTP_PORT" "$FTP_ADDRESS" . "$DST/ncftp-up" >"$LAB/ncftp" 2>&1
    same "$SRC/one" "$ROOT/ncftp-up" "ncftp: pushed"
else
    skip "ncftp" "it is not installed"
fi
# Not among what lab/needs.sh installs: INTEROP=full does.
if [ "${INTEROP:-}" = full ] && type -P rclone >/dev/null; then
    mkdir -p "$SRC/rclone/in"
    cp "$SRC/one" "$SRC/rclone/in/a b"
    for ((number = 0; number < 30; number++)); do head -c $((number * 1000)) "$SRC/one" >"$SRC/rclone/small $number"; done
    for way in clear explicit_tls; do
        R=(rclone --config /dev/null --ftp-host "$FTP_ADDRESS" --ftp-port "$FTP_PORT" --ftp-user ada --ftp-pass "$(rclone obscure "$PASSWORD")")
        if [ $way != clear ]; then
            # Its library does not resume the control connection's session of TLS on each data connection (rclone #7234).
            R+=(--ftp-explicit-tls --ftp-no-check-certificate --ftp-tls-cache-size 32)
            shut
            door --root "$ROOT" --session-reuse off
        fi
        "${R[@]}" copy "$SRC/rclone" ":ftp:rclone-$way" >"$LAB/rclone" 2>&1 && "${R[@]}" copy ":ftp:rclone-$way" "$DST/rclone-$way" >>"$LAB/rclone" 2>&1
        if diff -r "$SRC/rclone" "$DST/rclone-$way" >>"$LAB/rclone" 2>&1; then ok "rclone, $way: a tree there and back"; else not_ok "rclone, $way: a tree there and back" "$(grep -v "^$" "$LAB/rclone" | tail -3)"; fi
    done
fi
if [ "${INTEROP:-}" = full ] && type -P tnftp >/dev/null; then
    tnftp -o "$DST/tnftp" "ftp://ada:$PASSWORD@$FTP_ADDRESS:$FTP_PORT/one" >"$LAB/tnftp" 2>&1
    same "$SRC/one" "$DST/tnftp" "tnftp: pulled"
    tnftp -u "ftp://ada:$PASSWORD@$FTP_ADDRESS:$FTP_PORT/tnftp-up" "$SRC/one" >>"$LAB/tnftp" 2>&1
    same "$SRC/one" "$ROOT/tnftp-up" "tnftp: pushed"
fi
shut
if [ -n "$(ip -6 addr show dev lo 2>/dev/null)" ] && command -v lftp >/dev/null; then
    LONGHAUL_HOME=$LAB/ftp-home "$LONGHAUL" ftp serve --listen "[::1]:$FTP_PORT" --user ada --root "$ROOT" >"$LAB/ftp.out" 2>"$LAB/ftp.err" &
    DOOR=$!
    until_true 20 grep -q '^file manager' "$LAB/ftp.out"
    pasted=$(sed -n "s/^lftp: *//p" "$LAB/ftp.out")
    pasted=${pasted/-u ada/-u ada,$PASSWORD}
    eval "${pasted/ no\'/ no; set net:max-retries 2; put $SRC/one -o six; get six -o $DST/six; exit\'}" >"$LAB/lftp" 2>&1
    same "$SRC/one" "$DST/six" "IPv6: the line for lftp works when it is pasted"
    pasted=$(sed -n 's/^curl: *//p' "$LAB/ftp.out")
    is "$(eval "${pasted/-u ada/-sS -u ada:$PASSWORD}" | grep -c ' six')" 1 "IPv6: the line for curl works when it is pasted"
    shut
else
    skip "IPv6" "there is none here, or no lftp"
fi
finish
