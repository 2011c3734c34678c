# bug: a late Cancel ends the next drain
# shows: C8
# within: 50000
# file: control/messages.cc
# model: late-cancel
/message.attempt - binding->drain_attempt\) < 0\) return/d
