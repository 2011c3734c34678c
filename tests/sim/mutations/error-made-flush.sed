# bug: the application gets a flush for its original error
# shows: C6
# within: 500
# file: group/failing.cc
s/status = IBV_WC_RETRY_EXC_ERR;/status = IBV_WC_WR_FLUSH_ERR;/
