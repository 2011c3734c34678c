# bug: an offer takes a QP away from a path that is ready
# caught: livelock
# with: -DCROSS -DSCARES=1
# file: shift.pml
s/^(#define SPARES.*) shake\[q\] == 0 .*/\1 true)/
