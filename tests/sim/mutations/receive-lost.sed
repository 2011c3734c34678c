# bug: the oldest receive that was not consumed is not posted again
# shows: livelock
# within: 500
# file: group/commit.cc
s/std::min\(notifications_received\(group\), group.recv.journal.head\(\)\)/std::min(notifications_received(group) + 1, group.recv.journal.head())/
