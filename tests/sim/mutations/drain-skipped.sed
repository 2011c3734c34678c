# bug: the way back does not wait for requests under way
# shows: C7
# within: 500
# file: fsm/fsm.cc
# model: drain-skipped
s/S::kDraining, A::kPark, A::kSendDrain, A::kWatchDrain/S::kFencing, A::kEnterEpoch, A::kSendSwitch, A::kArmDeadline, A::kStartFence/
