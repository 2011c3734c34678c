# bug: the oldest receive that was not consumed is not posted again
# shows: livelock
# within: 500
# file: group/commit.cc
s/uint64_t position = notifications_received\(group\);/uint64_t position = notifications_received(group) + 1;/
