# bug: requests carry the default NIC's local keys on other paths
# shows: keys
# within: 500
# file: group/keys.cc
# campaign: local_keys_untranslated
s/SHIFT_PLANT\(local_keys_untranslated\)/true/
