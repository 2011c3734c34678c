// The end of objects that are the stock library's own although their context has a virtual one
// above.
#pragma once

#include <cerrno>

#include "ops/glue.h"

namespace shift::front {

// The stock library waits until the object's events are acknowledged before it lets go of its
// memory. Those that came through a virtual context were, when it read them, and it is there that
// they wait for the program, or that it has them in hand: that one must be waited for first. An
// object that cannot be destroyed (EBUSY) loses nothing. Unlike on the stock library, that answer
// comes only when the program has acknowledged what it was given.
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
