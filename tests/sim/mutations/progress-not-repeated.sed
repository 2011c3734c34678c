# bug: a new connection does not carry Progress again
# shows: C7
# within: 500
# file: control/round.cc
# model: progress-not-repeated
/if \(own_progress_\) session_.search.send/d
