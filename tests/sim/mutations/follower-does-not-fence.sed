# bug: the follower moves to the target before it has fenced its own path
# shows: livelock
# within: 500
# file: fsm/fsm.cc
# model: follower-does-not-fence
s/go\(S::kFencing, E::kTargetCurrent, S::kFencingTargeted, A::kKeepProgress\)/go(S::kFencing, E::kTargetCurrent, S::kResuming, A::kKeepProgress, A::kCommit, A::kSendProgress, A::kRequestKeys)/
