# bug: the path is given up for a better one, and another one is taken
# shows: C7
# within: 2000
# file: control/coordinator_actions.cc
s/if \(session.way_back.wanted\(\)\) return session/if (false) return session/
