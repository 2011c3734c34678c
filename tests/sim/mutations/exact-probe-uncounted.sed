# bug: exact: the probe's packet is not counted
# shows: C7
# within: 2000
# file: group/member_qp.cc
/life.members\[member\].own_packets\+\+;/d
