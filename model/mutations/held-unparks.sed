# bug: a lost channel lets the follower of a drain post again
# caught: C7
# with: -DFIRST_PATH=1 -DDRAINS=1 -DLOSSES=1 -DATOMIC_B=1 -DNOTIFY_B=0
# file: table.pml
/\/\* held \+ channel-lost/s/go1\(.*\)/go3(S_active, A_leave_drain, A_unpark, A_rebind)/
