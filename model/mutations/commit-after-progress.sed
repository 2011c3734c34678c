# bug: Progress is sent before the receives stand on the target
# caught: receives_stand
# with: -DCUTS=1
# file: table.pml
/seeking \+ path-ready/s/A_commit, A_send_progress/A_send_progress, A_commit/
