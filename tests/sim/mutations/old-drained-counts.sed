# bug: a late Drained counts for the next attempt
# shows: C8
# within: 10000
# file: control/drain.cc
# model: drained-of-old-attempt
s/ \|\| message.attempt != attempt_//
