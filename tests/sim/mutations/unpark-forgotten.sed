# bug: a drain that took too long leaves its end parked
# shows: C6
# within: 10000
# file: group/drain.cc
# model: unpark-forgotten
s/if \(group.send.route != Route::kParked\) return 0;/return 0;/
