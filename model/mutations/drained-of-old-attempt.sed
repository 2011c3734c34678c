# bug: a late Drained counts for the next attempt
# caught: C7
# with: -DFIRST_PATH=1 -DDRAINS=2 -DATOMIC_B=1 -DNOTIFY_B=0
# file: shift.pml
s/number == attempt && watch/watch/
