# bug: a Progress of an old epoch counts as one of the current epoch
# shows: C7
# within: 20000
# file: control/coordinator_messages.cc
# model: old-target-kept
/if \(is == EpochIs::kStale\) return/d
