// What the application asks of its QP, on whichever member carries its data. On its own thread.
#pragma once

#include <infiniband/verbs.h>

namespace shift::group {

struct Group;

// ibv_modify_qp but to RESET: what was asked for is remembered for the other members.
[[nodiscard]] int application_modify(Group& group, int member, const ibv_qp_attr& attr, int mask);
// The mode exact: the application has connected its QP and will send. Nothing is posted yet.
void count_packets(Group& group);

}  // namespace shift::group
