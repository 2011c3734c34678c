# bug: a lost channel lets the follower of a drain post again
# shows: C8
# within: 10000
# file: fsm/fsm.cc
# model: held-unparks
s/stay\(S::kHeld, E::kChannelLost, A::kRebind\)/go(S::kHeld, E::kChannelLost, S::kActive, A::kLeaveDrain, A::kUnpark, A::kRebind)/
