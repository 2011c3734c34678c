# bug: a drain that begins on the hot path does not bar it
# shows: C5
# within: 5000
# file: group/park.cc
s/if \(group.send.route != Route::kOnDefault\) return true;/return true;/
