# bug: a second fault begins no new round
# caught: receives_stand
# with: -DSCARES=2
# file: table.pml
/resuming \+ path-fault/s/go4\(S_fencing, A_enter_epoch, /go3(S_fencing, /
