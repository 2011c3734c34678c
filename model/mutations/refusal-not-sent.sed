# bug: an end that has failed does not answer
# caught: C6
# with: -DUNPROVEN=1 -DSCARES=1
# file: table.pml
/failed \+ peer-switch-current/s/go1\(.*\)/ignored()/
