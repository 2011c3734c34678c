# bug: a late Drained counts for the next attempt
# shows: C8
# within: 10000
# file: control/messages.cc
# model: drained-of-old-attempt
s/ \|\| message.attempt != binding->drain_attempt//
