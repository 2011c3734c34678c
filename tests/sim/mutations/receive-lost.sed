# bug: the oldest receive that was not consumed is not posted again
# shows: livelock
# within: 500
# file: group/commit.cc
s/group.recv.posted = notifications_received\(group\);/group.recv.posted = notifications_received(group) + 1;/
