# bug: a drain's marker counts for the fence's
# shows: C7
# within: 500
# file: group/completion.cc
s/if \(group.life.markers.under_way > 0\) \{/if (false) {/
