# bug: the leader replays without the follower's Progress
# shows: C7
# within: 500
# file: fsm/fsm.cc
# model: leader-does-not-wait
s/E::kPathReady, S::kExchanging, A::kCommit, A::kSendProgress/E::kPathReady, S::kResuming, A::kCommit, A::kSendProgress, A::kRequestKeys/
