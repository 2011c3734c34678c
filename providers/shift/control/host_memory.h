// What processes of this user have left for later ones, and what the operator says: of other hosts,
// and of this host's NICs.
#pragma once

#include <memory>
#include <string>

#include "net/host_book.h"

namespace shift::control {

// Made as the configuration says. A map that cannot be used is told of in the log, and left out.
std::unique_ptr<net::HostBook> host_book_make();

// A small file in the user's folder below SHIFT_STATE_DIR; empty: there is none, or it cannot be
// believed. Any thread may call these.
std::string kept_read(const std::string& name);
void kept_write(const std::string& name, const std::string& content);

}  // namespace shift::control
