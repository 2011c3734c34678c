# bug: the last notification that the peer counted runs again
# shows: livelock
# within: 500
# file: group/plan.cc
# model: executed-replayed
# campaign: replay_delivered
s/SHIFT_PLANT\(replay_delivered\)/true/
