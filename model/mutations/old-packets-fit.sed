# bug: packets of an old connection fit a new one
# caught: receives_stand
# with: -DSCARES=2
# file: shift.pml
s/^  sent\[X\(1, p\)\] = 0;//
