# bug: the follower gives the QP of its path to a new connection
# shows: keys
# within: 60000
# file: control/path_offers.cc
# model: offer-of-path-in-use
s/const bool carries = .*;/const bool carries = false;/
