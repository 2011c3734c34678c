# bug: a drain that took too long leaves its end parked
# caught: C6
# with: -DFIRST_PATH=1 -DDRAINS=1
# file: table.pml
/draining \+ drain-timeout/s/, A_unpark//;s/go3\(S_active, A_leave_drain, A_send_drain_cancel/go2(S_active, A_leave_drain, A_send_drain_cancel/
