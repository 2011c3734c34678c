# bug: a new connection does not carry Progress again
# caught: C7
# with: -DSCARES=1 -DLOSSES=1
# file: shift.pml
s/^    send\(net_progress\[me\]\)/    skip/
