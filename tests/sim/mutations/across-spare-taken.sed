# bug: the path is given up for a better one, and another one is taken
# shows: C7
# within: 2000
# file: control/actions.cc
s/if \(binding.trade.wanted\) \{/if (false) {/
