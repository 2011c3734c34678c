# bug: a fenced leader looks for no path
# caught: C7
# with: -DSCARES=1
# file: table.pml
/fencing \+ fence-done/s/go1\(S_seeking, A_seek_path\)/go0(S_seeking)/
