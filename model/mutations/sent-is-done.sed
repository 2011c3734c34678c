# bug: a request counts as done when it was sent
# caught: C4
# with: -DSCARES=1
# file: world.pml
s/done\[e\] < acked\[e\]/done[e] < posted[e]/
