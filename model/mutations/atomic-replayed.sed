# bug: an atomic of unknown outcome is posted again
# caught: C5
# with: -DSCARES=1 -DATOMIC_A=1
# file: shell.pml
s/:: UNPROVABLE\(me\)/:: false/
