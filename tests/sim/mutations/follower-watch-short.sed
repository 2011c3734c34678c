# bug: the follower's watch of a drain ends before the leader's
# shows: C8
# within: 500
# file: control/actions.cc
# model: follower-watch-short
s/milliseconds\(config\(\).drain_ms\) \* \(group.life.control.is_leader \? 1 : 4\)/milliseconds(config().drain_ms) \/ (group.life.control.is_leader ? 1 : 4)/
