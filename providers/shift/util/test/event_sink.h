// Hands the layer's event records to a test, instead of writing them to a file.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>

#include "util/log.h"

namespace shift::test {

using EventSink = std::function<void(const char* name, std::initializer_list<EventField> fields)>;
// With an empty `sink`, the layer makes no records.
void event_sink_set(EventSink sink);

// Returns the line that the layer would have written.
std::string event_text(int64_t t_ns, const char* name, std::initializer_list<EventField> fields);

}  // namespace shift::test
