# bug: the follower's watch of a drain ends before the leader's
# shows: C8
# within: 500
# file: control/drain.cc
# model: follower-watch-short
s/milliseconds\(config\(\).drain_ms\) \* patience/milliseconds(config().drain_ms) \/ patience/
