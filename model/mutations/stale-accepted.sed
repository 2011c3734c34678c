# bug: a message of an old epoch counts as a current one
# caught: livelock
# with: -DSCARES=2 -DKEEP_STALE
# file: shift.pml
s/\(current\) : E_peer_message_stale/(current) : (current)/
