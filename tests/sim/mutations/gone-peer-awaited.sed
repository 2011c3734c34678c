# bug: a peer whose process is gone is waited for as if it could come back
# shows: C6
# within: 2000
# file: control/session.cc
s/ && !search.is_peer_gone\(\)//
