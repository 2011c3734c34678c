# bug: a fault begins no new epoch
# shows: C7
# within: 500
# file: control/actions.cc
# model: epoch-not-raised
s/: group.life.control.epoch \+ 1;/: group.life.control.epoch + (group.life.control.epoch == 0);/
