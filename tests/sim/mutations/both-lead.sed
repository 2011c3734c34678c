# bug: both ends take themselves for the leader
# shows: C7
# within: 500
# file: control/coordinator.cc
s/group.life.control.is_leader = .*;/group.life.control.is_leader = true;/
