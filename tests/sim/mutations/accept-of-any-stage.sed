# bug: a copy of Accept connects the leader's QP once more
# shows: C2
# within: 5000
# file: control/path_maker.cc
s/ \|\| attempt_->stage != Stage::kOffered\) return;/) return;/
