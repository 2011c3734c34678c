/* What the tree's configuration says, for tests. */
#define IBVERBS_PABI_VERSION 44
