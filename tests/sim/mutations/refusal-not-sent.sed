# bug: an end that has failed does not answer
# shows: C6
# within: 500
# file: control/actions.cc
# model: refusal-not-sent
s/if \(channel != nullptr\) channel->send\(wire::Refuse.*/(void)channel;/
