// Objects for a device group whose default NIC is dead. The application may go on making objects:
// they live on the other members, and what each of them needs on the default is made on the deputy,
// a second context of another member's NIC. A QP there only gives the group its number.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>

#include "group/context.h"

namespace shift::ops {

// Whether new objects cannot be made on the default NIC.
inline bool needs_deputy(const group::Context& context) {
  return context.members[group::kDefault].dead;
}
// Called after a call on the default NIC has failed with `error`: whether its driver has let go of
// it, which the layer may not have heard yet.
bool is_default_gone(const group::Context& context, int error);

// The deputy, which the first call opens; null, with errno: no other NIC can be opened, or
// SHIFT_BORN forbids it. It lives as long as the context.
const group::Context::Deputy* deputy_of(group::Context& context);
// Where the context's default objects are made: on the default NIC, or on the deputy. `real` is
// null, with errno: nowhere.
struct Home {
  ibv_context* real;
  bool is_deputy;
};
Home home(group::Context& context);
// Makes an object there: make(Home) returns it, or null with errno. When the default NIC turns out
// to be gone, it is made on the deputy.
template <typename Make>
auto make_at_home(group::Context& context, const Make& make) {
  const Home at = home(context);
  auto made = at.real != nullptr ? make(at) : nullptr;
  if (made != nullptr || at.is_deputy || !is_default_gone(context, errno)) return made;
  const group::Context::Deputy* other = deputy_of(context);
  return other != nullptr ? make(Home{other->real, true}) : nullptr;
}
// To be called when the context is closed, after all objects and before the members. If the
// deputy's NIC is late, nothing is waited for.
void deputy_close(group::Context& context);

}  // namespace shift::ops
