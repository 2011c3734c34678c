# bug: an end that fails leaves its QPs open
# shows: C6
# within: 10000
# file: group/failing.cc
/for .* \(void\)member_qp_to_state\(group, m, IBV_QPS_ERR\);/d
