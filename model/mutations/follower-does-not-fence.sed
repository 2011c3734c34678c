# bug: the follower moves to the target before its own path is shut
# caught: receives_stand
# with: -DCUTS=1
# file: table.pml
/\/\* fencing \+ target-current/s/go1\(.*\)/go4(S_resuming, A_keep_progress, A_commit, A_send_progress, A_request_keys)/
