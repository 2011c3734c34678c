// Work requests on memory windows: bind, and invalidate (IBA 10.6.7).
#include <endian.h>

#include "nic/nic_model.h"
#include "nic/transport.h"

namespace cxemu {

bool window_update(Qp& qp, const SendWqe& wqe) {
  MemoryTable& memory = qp.nic.memory();
  const WindowUpdate& window = wqe.window;
  const uint32_t key = be32toh(wqe.imm_be);
  if (!window.bind) {
    return window.type2 ? memory.window_invalidate(qp.config.pd, qp.number, key)
                        : memory.window_unbind(qp.config.pd, key, window.variant);
  }
  return memory.window_bind(qp.config.pd, qp.number,
                            {.window_key = key,
                             .variant = window.variant,
                             .type2 = window.type2,
                             .region_key = window.region_key,
                             .address = window.address,
                             .length = window.length,
                             .iova = window.iova,
                             .access = window.access});
}

}  // namespace cxemu
