# bug: exact: the layer's own packets are not counted
# shows: C7
# within: 30000
# file: group/packets.cc
# unit: markers_forgotten
s/SHIFT_PLANT\(markers_forgotten\)/true/
