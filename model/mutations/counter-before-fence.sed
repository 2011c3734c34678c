# bug: the counter is taken when the fence begins
# caught: C2
# with: -DSCARES=1
# file: shell.pml shift.pml
s/a == A_start_fence -> fence\[me\] = 1/& ; count[me] = notified[o]/
s/^  count\[me\] = notified\[o\];//
