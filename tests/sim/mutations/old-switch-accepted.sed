# bug: a Switch of an old epoch begins a round
# shows: livelock
# within: 500
# file: control/coordinator_messages.cc
# model: stale-accepted
s/switch \(fsm::compare_epoch\(message.epoch, session->control.epoch\)\)/switch (message.epoch == session->control.epoch ? EpochIs::kCurrent : EpochIs::kNext)/
