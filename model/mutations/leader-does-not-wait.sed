# bug: the leader replays without the follower's Progress
# caught: receives_stand
# with: -DCUTS=1
# file: table.pml
/seeking \+ path-ready/s/go2\(.*\)/go3(S_resuming, A_commit, A_send_progress, A_request_keys)/
