// Event records of the layer, handed to a test instead of being written to a file.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>

#include "util/log.h"

namespace shift::test {

using EventSink = std::function<void(const char* name, std::initializer_list<EventField> fields)>;
// Empty: records are not made.
void event_sink_set(EventSink sink);

// The line that the layer would have written.
std::string event_text(int64_t t_ns, const char* name, std::initializer_list<EventField> fields);

}  // namespace shift::test
