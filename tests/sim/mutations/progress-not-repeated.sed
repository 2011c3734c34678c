# bug: a new connection does not carry Progress again
# shows: C7
# within: 500
# file: control/binding.cc
# model: progress-not-repeated
/if \(binding.told\) channel->send/d
