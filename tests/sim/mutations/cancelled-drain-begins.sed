# bug: a late copy of Drain parks the follower again
# shows: C8
# within: 50000
# file: control/messages.cc
# model: drain-of-old-attempt
/message.attempt - binding->drain_cancelled\) <= 0\) return/d
