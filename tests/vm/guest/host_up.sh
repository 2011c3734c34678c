#!/bin/bash
# host_up.sh NUMBER MTU: sets up the NICs of one test machine. rail0 and rail1 have an rxe device each
# (rxe0, rxe1), control has none. The addresses are from the ranges set aside for documentation.
set -e
number=$1 mtu=$2
ip link set lo up
names=(rail0 rail1 control)
networks=(192.0.2 198.51.100 203.0.113)
for i in 0 1 2; do
  for device in /sys/class/net/*; do
    [ "$(<"$device/address")" = "52:54:00:00:0$i:0$number" ] || continue
    ip link set "${device##*/}" name "${names[i]}"
  done
  ip link set "${names[i]}" mtu "$mtu" up
  ip address add "${networks[i]}.$number/24" dev "${names[i]}"
done
for i in 0 1; do rdma link add "rxe$i" type rxe netdev "rail$i"; done
exec "${BASH_SOURCE%/*}/nodes.sh"
