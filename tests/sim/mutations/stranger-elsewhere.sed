# bug: a channel may speak for a peer that is at another address
# shows: C11
# within: 2000
# file: control/peer_search.cc
s/if \(const auto ip = group_\.life\.ends\.remote\.gid\.ipv4\(\)\) return channel->is_at\(\*ip\);/if (group_.life.ends.remote.gid.ipv4()) return true;/
