# bug: all receives are posted again, not those that are left
# caught: C2
# with: -DSCARES=1 -DNOTIFY_A=3
# file: shell.pml
s/next_recv\[me\] = count\[me\]/next_recv[me] = 0/
