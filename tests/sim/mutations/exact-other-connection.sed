# bug: exact: the number of another connection is taken
# shows: C7
# within: 2000
# file: control/actions.cc
s/if \(responder.path == binding.sent_path &&/if (true || responder.path == binding.sent_path \&\&/
