#!/bin/bash
# Makes the device nodes of the verbs devices, since there is no udev.
mkdir -p /dev/infiniband
for file in /sys/class/infiniband_verbs/uverbs*/dev /sys/class/misc/rdma_cm/dev; do
  [ -e "$file" ] || continue
  folder=${file%/dev}
  node=/dev/infiniband/${folder##*/}
  rm -f "$node"
  mknod "$node" c "$(cut -d: -f1 "$file")" "$(cut -d: -f2 "$file")"
done
