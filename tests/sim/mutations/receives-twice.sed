# bug: all receives are posted again, also those that were consumed
# shows: C2
# within: 500
# file: group/commit.cc
# model: receives-twice
s/std::min\(notifications_received\(group\), group.recv.journal.head\(\)\)/0/
