# bug: a message of an old epoch counts as one of ours
# caught: livelock
# with: -DSCARES=2 -DKEEP_STALE
# file: shift.pml
s/\(current\) : E_peer_message_stale/(current) : (current)/
