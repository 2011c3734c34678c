// Answers what the front of libmlx5 asks about virtual objects (util/virtual_objects.h), and loads
// that front.
#include "direct_verbs.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstring>

#include "stock.h"
#include "util/virtual_objects.h"
#include "util/work_rings.h"

namespace {

namespace ops = shift::ops;

template <auto find, typename Object>
Object* real_of(Object* object) noexcept {
  return ops::owns(object->context) ? find(object) : object;
}

ibv_device* device(ibv_device* device) noexcept {
  return ops::owns(device) ? ops::real_device(device) : device;
}

ibv_context* context(ibv_context* context) noexcept {
  return ops::owns(context) ? ops::real_context(context) : context;
}

ibv_device** own_list(ibv_device** list, int count) noexcept {
  if (!shift::front::layer_enabled()) return list;
  ibv_device** own = ops::device_list_wrap(list, count);
  if (own == nullptr) shift::front::stock.free_device_list(list);
  return own;
}

constexpr shift::VirtualObjects kVirtualObjects = {
    .size = sizeof(shift::VirtualObjects),
    .device = device,
    .context = context,
    .pd = real_of<ops::real_pd, ibv_pd>,
    .cq = real_of<ops::real_cq, ibv_cq>,
    .srq = real_of<ops::real_srq, ibv_srq>,
    .qp = real_of<ops::real_qp, ibv_qp>,
    .mode = ops::direct_verbs,
    .warn = ops::warn,
    .let_go_qp = ops::let_go,
    .let_go_cq = ops::let_go,
    .let_go_srq = ops::let_go,
    .make_qp = ops::create_unprotected_qp,
    .own_list = own_list,
};

// The front of libmlx5 is in the same folder as this library, or it is not installed.
void load() noexcept {
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&load), &self) == 0) return;
  const char* slash = strrchr(self.dli_fname, '/');
  char path[PATH_MAX];
  if (slash == nullptr ||
      snprintf(path, sizeof path, "%.*s/libmlx5.so.1", static_cast<int>(slash - self.dli_fname),
               self.dli_fname) >= static_cast<int>(sizeof path)) {
    return;
  }
  if (access(path, R_OK) != 0) return;
  void* const front = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (front == nullptr) {
    const char* why = dlerror();
    ops::warn(why != nullptr ? why : path);
    return;
  }
  const auto work_rings =
      reinterpret_cast<decltype(&shift_work_rings)>(dlsym(front, "shift_work_rings"));
  if (work_rings == nullptr) {
    dlerror();  // it is of an older build; the message is not for the program
  } else if (work_rings()->size >= sizeof(shift::WorkRingTable)) {
    shift::front::stock.work_rings = work_rings();
  }
}

pthread_once_t load_once = PTHREAD_ONCE_INIT;

}  // namespace

namespace shift::front {

void direct_verbs_load() noexcept {
  pthread_once(&load_once, load);
}

}  // namespace shift::front

SHIFT_EXPORT const shift::VirtualObjects* shift_virtual_objects() {
  return &kVirtualObjects;
}
