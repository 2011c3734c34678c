# bug: a trade for a better path takes another path
# shows: C7
# within: 2000
# file: control/coordinator_actions.cc
s/if \(session.way_back.wanted\(\)\) return session/if (false) return session/
