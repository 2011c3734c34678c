# bug: both ends take themselves for the leader
# shows: C7
# within: 500
# file: control/coordinator.cc
s/group->is_leader = .*;/group->is_leader = true;/
