# bug: a fault begins no new epoch
# shows: C7
# within: 500
# file: control/actions.cc
# model: epoch-not-raised
s/: group.epoch \+ 1;/: group.epoch + (group.epoch == 0);/
