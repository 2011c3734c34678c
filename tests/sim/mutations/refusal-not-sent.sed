# bug: an end that has failed does not answer
# shows: C6
# within: 500
# file: control/coordinator_actions.cc
# model: refusal-not-sent
/session.search.send\(refusal\);/d
