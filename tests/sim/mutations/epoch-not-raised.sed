# bug: a fault begins no new epoch
# shows: C7
# within: 500
# file: control/round.cc
# model: epoch-not-raised
s/: session_.control.epoch \+ 1;/: session_.control.epoch + (session_.control.epoch == 0);/
