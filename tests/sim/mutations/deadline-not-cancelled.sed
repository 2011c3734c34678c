# bug: the deadline of a round that is over stays armed
# shows: C7
# within: 50000
# file: control/coordinator_actions.cc
s/session.round.cancel_deadline\(\);/(void)session;/
