// The part of the command line that concerns one process only.
#pragma once

#include <CLI/CLI.hpp>

#include "options.h"

namespace traffic {

void local_options_add(CLI::App* app, Local* local);

}  // namespace traffic
