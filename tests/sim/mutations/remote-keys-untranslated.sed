# bug: requests carry the default NIC's remote keys on other paths
# shows: keys
# within: 500
# file: group/replay.cc
# campaign: keys_untranslated
s/SHIFT_PLANT\(keys_untranslated\)/true/
