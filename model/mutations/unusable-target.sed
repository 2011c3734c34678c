# bug: an end commits to a path whose QP is not connected
# caught: livelock
# with: -DSCARES=2
# file: shell.pml
s/!no_region\[me\] \&\& rts\[X\(me, k\)\] && target_generation.* \&\& !DEAD\(me, k\)/true/
