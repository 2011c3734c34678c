// Control messages as text for people.
#pragma once

#include <string>

#include "wire/messages.h"

namespace shift::sim {

std::string message_text(const wire::Message& message);

}  // namespace shift::sim
