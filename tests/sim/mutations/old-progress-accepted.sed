# bug: a Progress of an old epoch counts as one of ours
# shows: C7
# within: 20000
# file: control/coordinator_messages.cc
# model: old-target-kept
/if \(is == EpochIs::kStale\) return/d
