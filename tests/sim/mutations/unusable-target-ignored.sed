# bug: an end that cannot use the target begins no other round
# shows: C7
# within: 500
# file: control/replaying.cc
# model: failed-commit-ignored
/if \(!usable\) \{/,/return false/s/follow_up->push_back\(Event::kTargetUnusable\);//
