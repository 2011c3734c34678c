# bug: a copy of Accept connects the leader's QP once more
# shows: C2
# within: 5000
# file: control/attempts.cc
s/ \|\| binding.attempt->stage != Stage::kOffered\) \{/) {/
