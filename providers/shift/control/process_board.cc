#include "control/process_board.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string_view>

#include "state/directory.h"
#include "util/config.h"
#include "util/fork.h"
#include "wire/messages.h"

namespace shift::control {

namespace {

state::ProcessRecord about();

struct Owned {
  const uint64_t generation = fork_generation();
  state::Board board{config().state_dir, about};
};

constinit std::atomic<Owned*> current{nullptr};

state::ProcessRecord about() {
  state::ProcessRecord record;
  state::text_set(record.version, SHIFT_VERSION);
  record.wire_version = wire::kVersion;
  record.has_key = config().key_file.has_value();
  state::text_set(record.settings, config_settings_text(sizeof record.settings - 1));
  return record;
}

// A child that was forked leaves its parent's file alone.
void end() {
  Owned* owned = current.load();
  if (owned == nullptr || owned->generation != fork_generation()) return;
  const std::string stem = owned->board.stem();
  if (!stem.empty()) (void)::unlink((stem + state::kSocketEnd).c_str());
  owned->board.end();
}

bool is_ours(const Owned* owned) {
  return owned != nullptr && owned->generation == fork_generation();
}

}  // namespace

state::Board& process_board() {
  Owned* owned = current.load(std::memory_order_acquire);
  if (is_ours(owned)) return owned->board;
  static const int watched = std::atexit(end);
  (void)watched;
  // No lock, which a fork child could not open. A board makes its file with the first notice, so
  // that one board too many does no harm.
  auto made = std::make_unique<Owned>();
  while (!is_ours(owned)) {
    if (current.compare_exchange_strong(owned, made.get(), std::memory_order_acq_rel))
      owned = made.release();
  }
  return owned->board;
}

void tell_alone(const char* device, const char* why) noexcept try {
  state::DeviceRecord record;
  record.members = 1;
  record.name_set(0, device);
  state::text_set(record.problem, why);
  // Odd, as no context's address is.
  process_board().device_set(std::hash<std::string_view>()(device) | 1, record);
} catch (const std::bad_alloc&) {
}

}  // namespace shift::control
