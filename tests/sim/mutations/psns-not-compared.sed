# bug: a Bind proves its sender whatever PSNs it names
# shows: C11
# within: 2000
# file: control/peer_search.cc
s/if \(!fits\) wrong_binds_\.spend\(\);/return Proof::kFits;/
