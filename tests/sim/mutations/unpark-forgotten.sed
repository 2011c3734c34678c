# bug: after a drain that took too long the end stays parked
# shows: C6
# within: 10000
# file: group/drain.cc
# model: unpark-forgotten
s/if \(group.send.route != Route::kParked\) return 0;/return 0;/
