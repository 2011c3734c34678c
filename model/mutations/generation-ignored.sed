# bug: the follower accepts another generation of the named path
# caught: livelock
# with: -DSCARES=2
# file: shell.pml
s/ && target_generation\[me\] == generation\[k\]//
