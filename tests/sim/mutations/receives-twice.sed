# bug: all receives are posted again, also those that were consumed
# shows: C2
# within: 500
# file: group/commit.cc
# model: receives-twice
s/uint64_t position = notifications_received\(group\);/uint64_t position = 0;/
