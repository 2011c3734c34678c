# bug: the last notification that the peer counted runs again
# caught: C2
# with: -DSCARES=1
# file: shell.pml
s/NOTIFICATIONS\(me, done\[me\]\) < peer_count/NOTIFICATIONS(me, done[me] + 1) < peer_count/
