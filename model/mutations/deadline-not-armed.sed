# bug: nothing bounds the way to another path
# caught: C6
# with: -DCUTS=2
# file: table.pml
/active \+ path-fault/s/go4\(S_fencing, A_enter_epoch, A_send_switch, A_arm_deadline, /go3(S_fencing, A_enter_epoch, A_send_switch, /
