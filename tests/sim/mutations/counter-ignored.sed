# bug: the peer's counter proves nothing
# shows: livelock
# within: 500
# file: group/plan.cc
# model: executed-replayed
# campaign: counter_ignored
s/SHIFT_PLANT\(counter_ignored\)/true/
