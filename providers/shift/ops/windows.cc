// Memory windows. A window lives on the default NIC, and works as on stock while the default path
// is in use. On any other path, a request that names a window is refused (group/plan.cc), and so is
// a request of the peer that uses a window's key, because that key belongs to no region. The
// application's handle is the NIC's own object, as it is for a region.
#include "ops/windows.h"

#include "group/group.h"
#include "ops/entry.h"
#include "ops/fresh_key.h"
#include "ops/post_slow.h"
#include "ops/tables.h"
#include "util/log.h"

namespace shift::ops {

using group::Context;
using group::Group;
using group::kDefault;
using group::Route;

int bind_window(Group& g, ibv_mw* mw, ibv_mw_bind* bind) {
  auto lock = lock_queue(g.send, true);
  if (g.send.route != Route::kOnDefault) {
    SHIFT_WARN_LIMITED("qp 0x%x: a memory window cannot be bound: traffic is not on %s", g.qpn(),
                       g.context->device->dev.name);
    return EOPNOTSUPP;
  }
  ibv_qp* real = g.real[kDefault];
  // The provider posts the bind as a request, which completes like any other.
  ibv_send_wr wr{};
  wr.wr_id = bind->wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = bind->send_flags;
  wr.bind_mw.mw = mw;
  wr.bind_mw.bind_info = bind->bind_info;
  const int error = real->context->ops.bind_mw(real, mw, bind);
  wr.bind_mw.rkey = mw->rkey;
  if (error == 0) g.send.journal.add(wr);
  g.send.adopt();
  return post_send_failed(g, error);
}

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) noexcept {
  ibv_pd* real = virtual_pd(pd)->real[kDefault];
  if (Context::from(pd->context)->members[kDefault].dead) {
    errno = EIO;  // a window has one NIC only
    return nullptr;
  }
  if (real->context->ops.alloc_mw == nullptr) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  const auto make = [&] { return real->context->ops.alloc_mw(real, type); };
  ibv_mw* mw = fresh(*Context::from(pd->context), make(), make,
                     [](ibv_mw* made) { (void)made->context->ops.dealloc_mw(made); });
  if (mw == nullptr) return nullptr;
  mw->context = pd->context;
  mw->pd = pd;
  virtual_pd(pd)->users++;
  return mw;
}

int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) noexcept {
  if (owns(qp->context)) return bind_window(*Group::from(qp), mw, bind);
  return qp->context->ops.bind_mw(qp, mw, bind);
}

int dealloc_mw(ibv_mw* mw) noexcept {
  ibv_context* context = mw->context;
  ibv_pd* pd = mw->pd;
  mw->context = Context::from(context)->members[kDefault].real;
  mw->pd = virtual_pd(pd)->real[kDefault];
  const int error = mw->context->ops.dealloc_mw(mw);
  if (error != 0) {
    mw->context = context;
    mw->pd = pd;
    return error;
  }
  virtual_pd(pd)->users--;
  return 0;
}

}  // namespace shift::ops
