# bug: an end that fails leaves its QPs open
# shows: C6
# within: 10000
# file: group/failing.cc
/for \(ibv_qp\* real : group.real\) real_to_error\(real\);/d
