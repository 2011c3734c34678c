# bug: the follower's watch of a drain ends before the leader's
# caught: C7
# with: -DFIRST_PATH=1 -DDRAINS=1 -DATOMIC_B=1 -DNOTIFY_B=0
# file: config.pml
s/\(\(e\) == 0 \|\| !answered \|\| !RECONNECT/(true || !RECONNECT/
