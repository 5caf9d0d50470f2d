#!/bin/busybox sh
# shellcheck shell=dash
# The guest's first stage: loads what mounts the root disk, copies this run's files over it, and hands over to guest/init.
b=/bin/busybox
$b mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
while read -r module; do $b insmod /lib/modules/"$module" 2>/dev/null; done </lib/modules/order
n=0
while [ ! -b /dev/vda ] && [ $n -lt 500 ]; do $b usleep 10000; n=$((n + 1)); done
$b mount -t ext4 -o noatime /dev/vda /newroot || { echo "vm: no root disk"; $b poweroff -f; }
$b mount -t ext4 -o ro,noatime /dev/vdb /newroot/lib/modules || echo "vm: no kernel modules"
$b cp -a /vm/. /newroot/vm/
[ -d /copy ] && $b cp -a /copy/. /newroot/
$b mount -t tmpfs -o mode=755 run /newroot/run
$b mount --move /dev /newroot/dev
$b mount --move /proc /newroot/proc
$b mount --move /sys /newroot/sys
exec $b switch_root /newroot /vm/init
