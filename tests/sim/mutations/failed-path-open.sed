# bug: an end that fails leaves its QPs open
# shows: C6
# within: 10000
# file: control/failing.cc
s/(member_qp_to_state\(g, m, )IBV_QPS_ERR\)/\1g.real[m]->state)/
