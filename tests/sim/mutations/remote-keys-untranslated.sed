# bug: requests carry the default NIC's remote keys on other paths
# shows: keys
# within: 500
# file: group/replay.cc
# campaign: remote_keys_untranslated
s/SHIFT_PLANT\(remote_keys_untranslated\)/true/
