# bug: a channel may speak for a peer that is at another address
# shows: C11
# within: 2000
# file: control/peer_search.cc
s/if \(net_\.leads_to\(\*channel, remote\)\) return true;/if (net_.leads_to(*channel, remote) || remote.ipv4()) return true;/
