#!/bin/sh
# The first program of a test machine. It makes the host's root file system the root, read-only over
# 9p, with a tmpfs above it that takes what is written. It loads the kernel modules in the order of
# /modules/order, so that the kernel need not look for any later.
/bin/busybox --install -s /bin
export PATH=/bin
mkdir -p /proc /sys /dev /host /upper /newroot
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
while read -r module; do
  insmod "/modules/$module" || echo "init: $module is not loaded"
done </modules/order

nine=trans=virtio,version=9p2000.L,msize=262144
mount -t 9p -o "$nine,ro,cache=loose" host /host || echo "init: no host root"
mount -t tmpfs -o size=50% upper /upper
mkdir /upper/data /upper/work
# Redirects and metadata copies would need attributes that 9p does not have.
mount -t overlay -o \
  lowerdir=/host,upperdir=/upper/data,workdir=/upper/work,redirect_dir=off,metacopy=off \
  root /newroot || echo "init: no root"
# The host's /run is hidden, since its programs do not run here. Its /tmp stays visible: the project may
# be there.
mount -t tmpfs run /newroot/run
# Host and machine write to these folders: one is this machine's, the other is common to both machines.
for folder in shared common; do
  mkdir -p /newroot/run/$folder
  mount -t 9p -o "$nine,rw,cache=none" $folder /newroot/run/$folder || echo "init: nothing $folder"
done
for folder in proc sys dev; do mount --move "/$folder" "/newroot/$folder"; done
mkdir -p /newroot/dev/shm /newroot/dev/pts
mount -t tmpfs shm /newroot/dev/shm
mount -t devpts pts /newroot/dev/pts

for word in $(cat /newroot/proc/cmdline); do
  case $word in
    agent=*) agent=${word#agent=} ;;
  esac
done
exec switch_root /newroot /usr/bin/python3 -ISE "$agent"
