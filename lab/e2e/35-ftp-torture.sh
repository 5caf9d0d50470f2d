#!/usr/bin/env bash
# FTP: kill -9 of either end at N random instants (4; `make torture-ftp` 200): plain FTP by our client, LHDATA, curl, and MODE E by globus-url-copy. No name
# ever shows a wrong or partial file, and the next run moves what is missing.
source "$(dirname "$0")/check.sh"

on a env N="${N:-4}" SEED="${SEED:-$RANDOM}" LAB="$LAB" LONGHAUL="$LONGHAUL" FTP_ADDRESS="$([ "$HOST_KIND" = loopback ] && echo 127.0.0.1 || echo "$ADDR_A")" \
    python3 "$E2E/ftp_torture.py" || BAD=1
finish
