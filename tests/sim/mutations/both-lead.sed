# bug: both ends act as the leader
# shows: C7
# within: 500
# file: control/coordinator.cc
s/group.life.control.is_leader = .*;/group.life.control.is_leader = true;/
