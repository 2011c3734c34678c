#include "control/host_memory.h"

#include <unistd.h>

#include <chrono>
#include <ctime>
#include <utility>

#include "state/hosts_file.h"
#include "state/small_file.h"
#include "util/config.h"
#include "util/host_map.h"
#include "util/log.h"

namespace shift::control {

namespace {

class FileMemory final : public net::HostMemory {
 public:
  explicit FileMemory(const std::string& base) : file_(base, geteuid()) {}

  const std::vector<net::SeenHost>& recall(bool fresh) override {
    constexpr std::chrono::milliseconds kPause{250};
    const auto now = std::chrono::steady_clock::now();
    if (!fresh && now - read_at_ < kPause) return hosts_;
    read_at_ = now;
    const auto& lines = file_.read();
    if (std::exchange(changes_, file_.changes()) == file_.changes()) return hosts_;
    hosts_.clear();
    for (const state::HostLine& line : lines)
      hosts_.push_back({wire::Gid{line.gid}, line.addresses_be, line.seen_s});
    return hosts_;
  }
  void remember(const std::vector<net::SeenHost>& hosts) override {
    std::vector<state::HostLine> lines;
    for (const net::SeenHost& host : hosts)
      lines.push_back({host.gid.raw, host.seen_s, host.addresses_be});
    file_.write(lines);
  }

 private:
  state::HostsFile file_;
  uint64_t changes_ = 0;
  std::chrono::steady_clock::time_point read_at_{};
  std::vector<net::SeenHost> hosts_;
};

}  // namespace

std::unique_ptr<net::HostBook> host_book_make() {
  HostMap map;
  if (!config().peers.empty()) {
    std::string why;
    map = HostMap::read(config().peers, why);
    if (!why.empty())
      SHIFT_WARN("the map of hosts %s cannot be used: %s; see SHIFT_PEERS in shift.conf(5)",
                 config().peers.c_str(), why.c_str());
  }
  std::unique_ptr<net::HostMemory> memory;
  if (!config().state_dir.empty()) memory = std::make_unique<FileMemory>(config().state_dir);
  return std::make_unique<net::HostBook>(std::move(map), std::move(memory),
                                         [] { return static_cast<int64_t>(time(nullptr)); });
}

std::string kept_read(const std::string& name) {
  constexpr size_t kMost = size_t{1} << 18;
  std::string content;
  if (!config().state_dir.empty())
    (void)state::small_file_read(config().state_dir, geteuid(), name, kMost, {}, content);
  return content;
}

void kept_write(const std::string& name, const std::string& content) {
  if (!config().state_dir.empty())
    (void)state::small_file_write(config().state_dir, geteuid(), name, content);
}

}  // namespace shift::control
