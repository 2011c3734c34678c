# bug: the follower does not try the path for a leader that only receives
# shows: C7
# within: 2000
# file: control/path_offers.cc
s/message.kind != wire::Ready::Kind::kAsk\) return/true) return/
