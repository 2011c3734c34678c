#!/bin/sh
# fault_cxemu.sh FAULT DEVICE PORT: breaks or heals a NIC of the emulated host that this runs on.
# A value of RDMA_TEST_FAULT_CMD.
if [ -z "$CXEMU_HOST" ]; then
  echo "This is no emulated host: cxemu exec starts programs on one"
  exit 77
fi
case "$1" in
  link-down | link-up | kill | revive | drop-acks | drop-data | heal) ;;
  *) echo "unknown fault: $1"; exit 2 ;;
esac
# cxemu must not run on the host itself.
exec env -u LD_PRELOAD -u LD_LIBRARY_PATH "${CXEMU:-cxemu}" fault "$CXEMU_HOST/$2" "$1"
