# bug: the follower takes another connection of the named path for the one that was named
# caught: livelock
# with: -DSCARES=2
# file: shell.pml
s/ && target_generation\[me\] == generation\[k\]//
