# bug: the old path is counted without having been shut
# caught: C11
# with: -DSCARES=1 -DLENIENT=1
# file: shift.pml
s/rts\[X\(me, at\[me\]\)\] = false; fence/fence/
