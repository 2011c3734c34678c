# bug: Progress is sent though the receives could not be posted
# caught: receives_stand
# with: -DDEATHS=1 -DCUTS=1
# file: shell.pml
/follow_up = E_target_unusable/,/stop = true/s/stop = true/skip/
