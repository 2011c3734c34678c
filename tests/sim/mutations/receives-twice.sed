# bug: all receives are posted again, also those that were consumed
# shows: C2
# within: 500
# file: group/commit.cc
# model: receives-twice
s/group.recv.posted = notifications_received\(group\);/group.recv.posted = 0;/
