# bug: a path that a round has tried is still taken for ready
# shows: livelock
# within: 2000
# file: control/replaying.cc
/binding.book.ready_drop\(binding.target\);/d
