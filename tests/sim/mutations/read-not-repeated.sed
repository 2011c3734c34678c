# bug: a READ that was executed completes without its data
# shows: C4
# within: 2000
# file: group/replay.cc
s/if \(wr.opcode == IBV_WR_RDMA_READ && position >= plan.fenced\) \{/if (false) {/
