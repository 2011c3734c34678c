# bug: a new connection begins at the PSN of the last one
# shows: C4
# within: 30000
# file: group/member.cc
# model: old-packets-fit
s/own->psn = next_psn\((.*)\);/own->psn = (\1);/
