# bug: a Switch of an old epoch begins a round
# shows: livelock
# within: 500
# file: control/messages.cc
# model: stale-accepted
s/switch \(fsm::compare_epoch\(message.epoch, binding->group->life.control.epoch\)\)/switch (message.epoch == binding->group->life.control.epoch ? EpochIs::kCurrent : EpochIs::kNext)/
