# bug: a late Cancel ends the next drain
# shows: C8
# within: 50000
# file: control/drain.cc
# model: late-cancel
/message.attempt - attempt_\) < 0\) return/d
