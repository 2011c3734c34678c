# how: cycles
# bug: a late copy of Drain parks the follower again
# caught: endless run
# with: -DFIRST_PATH=1 -DDRAINS=1
# file: shift.pml
s/number > seen_attempt && LIVE\(me, E_peer_drain\)/LIVE(me, E_peer_drain)/
