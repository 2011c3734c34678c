// Lists the emulated host's devices in the order of their numbers. Programs take the first device
// that libibverbs finds, and the order of real listings differs between file systems.
#include <dirent.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "host/guest.h"
#include "host/interpose.h"
#include "host/paths.h"
#include "host/real.h"

namespace {

using cxemu::Guest;
using cxemu::Real;
using cxemu::TranslatedPath;

// Both names are the same struct on this machine.
static_assert(sizeof(dirent) == sizeof(dirent64));

Real<DIR*(const char*)> g_opendir("opendir");
Real<dirent*(DIR*)> g_readdir("readdir64");
Real<void(DIR*)> g_rewinddir("rewinddir");
Real<int(DIR*)> g_closedir("closedir");

struct Listing {
  std::vector<dirent> entries;
  size_t next = 0;
};

struct Listings {
  std::mutex mutex;
  std::unordered_map<DIR*, Listing> open;
};
// Nearly always 0; then listing other folders costs only this check.
std::atomic<int> g_count{0};

// Never destroyed: programs list folders while they exit, too.
Listings& listings() {
  static auto* all = new Listings;
  return *all;
}

// Programs reach the tree by translation; libibverbs uses its own path, which it has from
// SYSFS_PATH.
bool is_in_tree(const char* path) {
  const Guest* guest = Guest::get();
  return guest != nullptr && path != nullptr &&
         std::string_view(path).starts_with(guest->sysfs_root());
}

bool comes_before(const dirent& a, const dirent& b) {
  const std::string_view x = a.d_name, y = b.d_name;
  return x.size() != y.size() ? x.size() < y.size() : x < y;  // mlx5_2 before mlx5_10
}

void listing_add(DIR* dir) {
  Listing listing;
  while (const dirent* entry = g_readdir(dir)) listing.entries.push_back(*entry);
  std::sort(listing.entries.begin(), listing.entries.end(), comes_before);
  std::lock_guard lock(listings().mutex);
  listings().open[dir] = std::move(listing);
  g_count++;
}

// Returns false if the listing is not ours.
bool listing_next(DIR* dir, dirent** entry) {
  if (g_count.load(std::memory_order_relaxed) == 0) return false;
  std::lock_guard lock(listings().mutex);
  const auto it = listings().open.find(dir);
  if (it == listings().open.end()) return false;
  Listing& listing = it->second;
  *entry = listing.next == listing.entries.size() ? nullptr : &listing.entries[listing.next++];
  return true;
}

dirent* next_any(DIR* dir) {
  dirent* entry;
  return listing_next(dir, &entry) ? entry : g_readdir(dir);
}

}  // namespace

CXEMU_EXPORT(DIR*, opendir, (const char* path)) {
  const TranslatedPath translated(path);
  DIR* dir = g_opendir(translated.get());
  if (dir != nullptr && is_in_tree(translated.get())) listing_add(dir);
  return dir;
}
CXEMU_EXPORT(dirent*, readdir, (DIR * dir)) {
  return next_any(dir);
}
CXEMU_EXPORT(dirent*, readdir64, (DIR * dir)) {
  return next_any(dir);
}
CXEMU_EXPORT(void, rewinddir, (DIR * dir)) {
  if (g_count.load(std::memory_order_relaxed) > 0) {
    std::lock_guard lock(listings().mutex);
    const auto it = listings().open.find(dir);
    if (it != listings().open.end()) it->second.next = 0;
  }
  g_rewinddir(dir);
}
CXEMU_EXPORT(int, closedir, (DIR * dir)) {
  if (g_count.load(std::memory_order_relaxed) > 0) {
    std::lock_guard lock(listings().mutex);
    g_count -= static_cast<int>(listings().open.erase(dir));
  }
  return g_closedir(dir);
}
