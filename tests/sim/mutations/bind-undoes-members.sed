# bug: a late Bind takes back what a newer Members said
# shows: C7
# within: 20000
# file: control/coordinator_messages.cc
/Later ones are followed/,/peer_members_set/s/if \(!was_proven\) \{/if (true) {/
