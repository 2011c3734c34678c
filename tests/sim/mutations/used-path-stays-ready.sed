# bug: a path that a round has tried still counts as ready
# shows: livelock
# within: 20000
# file: control/round.cc
/session_.book.ready_drop\(target_.path\);/d
