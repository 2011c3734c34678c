# bug: an end that cannot use the target begins no other round
# shows: C7
# within: 500
# file: control/round.cc
# model: failed-commit-ignored
s/if \(!is_usable\) return input.then\(Event::kTargetUnusable\);/if (!is_usable) return Input{Event::kPeerMessageStale};/
