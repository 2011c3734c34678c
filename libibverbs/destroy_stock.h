// Destroys objects that belong to the stock library although their context lies beneath a virtual
// one.
#pragma once

#include <cerrno>

#include "ops/glue.h"

namespace shift::front {

// The stock library frees an object only after all its events are acknowledged. A virtual context
// acknowledges events as soon as it has read them. The program then still waits for them, or holds
// them, at the virtual context; so that context must be waited for first. An object that cannot be
// destroyed (EBUSY) loses no event. Unlike on the stock library, EBUSY is returned only after the
// program has acknowledged what it was given.
template <typename Object>
int destroy_stock(Object* object, int (*destroy)(Object*)) {
  ibv_context* above = ops::context_above(object->context);
  if (above == nullptr) return destroy(object);
  if (!ops::keep_events_back(above, object)) return ENOMEM;
  const int error = destroy(object);
  error == 0 ? ops::forget_events(above, object) : ops::let_events_come(above, object);
  return error;
}

}  // namespace shift::front
