# bug: a QP in ERR still places data that needs no receive
# caught: C3
# with: -DSCARES=1 -DLENIENT=1
# file: world.pml
s/^#define CAN_ARRIVE\(r, p\) \(rts\[X\(r, p\)\]/#define CAN_ARRIVE(r, p) ((rts[X(r, p)] || !IS_NOTIFICATION(PEER(r), expects[X(r, p)]))/
