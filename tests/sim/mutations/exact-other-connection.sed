# bug: exact: the number of another connection is taken
# shows: C7
# within: 2000
# file: control/round.cc
s/if \(Connection\{responder.path, responder.generation\} == sent_\)/if (true || Connection{responder.path, responder.generation} == sent_)/
