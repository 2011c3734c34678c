# bug: a success found while draining is delivered and not counted
# caught: C1
# with: -DSCARES=1
# file: world.pml
s/done\[e\]\+\+;/done[e] = done[e] + (fence[e] < 2);/
