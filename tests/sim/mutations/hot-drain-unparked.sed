# bug: a drain that begins on the hot path does not bar it
# shows: C5|C7
# within: 5000
# file: group/drain.cc
s/if \(!park_sends\(group\)\) return false;/if (group.send.route != Route::kOnDefault \&\& !park_sends(group)) return false;/
