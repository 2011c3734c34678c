# bug: a late copy of a cancel ends the next drain
# caught: C7
# with: -DFIRST_PATH=1 -DDRAINS=2 -DATOMIC_B=1 -DNOTIFY_B=0
# file: shift.pml
s/\(number > seen_attempt \|\| \(number == seen_attempt && !seen_cancel\)\)/!(number == seen_attempt \&\& seen_cancel)/
