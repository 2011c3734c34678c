# bug: an end that is about to resume does not follow its peer
# caught: C7
# with: -DSCARES=2
# file: table.pml
/\/\* resuming \+ peer-switch-next/s/go4\(.*\)/ignored()/
