# bug: the follower gives the QP of its path to a new connection
# caught: C2
# with: -DSCARES=1 -DLENIENT=1
# file: shift.pml
s/ && !USES_MEMBER_OF\(1, p\)//
