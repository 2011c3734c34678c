# bug: a late copy of Drain parks the follower again
# shows: C8
# within: 50000
# file: control/drain.cc
# model: drain-of-old-attempt
/message.attempt - cancelled_\) <= 0\) return/d
