# bug: the way back does not wait for what is under way
# caught: C7
# with: -DFIRST_PATH=1 -DDRAINS=1 -DATOMIC_A=1
# file: table.pml
/active \+ better-path/s/go3\(.*\)/go4(S_fencing, A_enter_epoch, A_send_switch, A_arm_deadline, A_start_fence)/
