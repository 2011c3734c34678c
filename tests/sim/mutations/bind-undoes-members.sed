# bug: a late Bind takes back what a newer Members said
# shows: C7
# within: 20000
# file: control/messages.cc
s/if \(!was_proven\) \{/if (true) {/
