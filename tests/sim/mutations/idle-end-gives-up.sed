# bug: an end gives up although nothing of its application's waits
# shows: C7
# within: 2000
# file: control/round.cc
s/\} else if \(sends.first != sends.end\) \{/} else {/
