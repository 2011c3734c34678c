// What the application asks of its QP, done on the member that carries its data. Called on the
// application's thread or, for a further member, on the command thread of its NIC.
#pragma once

#include <infiniband/verbs.h>

namespace shift::group {

struct Group;

// Does the work of ibv_modify_qp for any state but RESET, and remembers the attributes for the
// other members.
[[nodiscard]] int application_modify(Group& group, int member, const ibv_qp_attr& attr, int mask);
// Remembers what the default's NIC has refused for a reason of its own: another member is connected
// with it.
void application_note(Group& group, const ibv_qp_attr& attr, int mask);
// For modes that ask the responder: called when the application has connected its QP and can send,
// before anything is posted.
void count_packets(Group& group);

}  // namespace shift::group
