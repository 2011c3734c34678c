# bug: a new connection does not carry Switch again
# shows: C7
# within: 1000
# file: control/round.cc
s/^      return send_switch\(\);/      return;/
