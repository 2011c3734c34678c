# bug: a target that was named in an older epoch is still taken
# caught: receives_stand
# with: -DSCARES=2
# file: table.pml
/fencing-targeted \+ peer-switch-next/s/S_fencing,/S_fencing_targeted,/
