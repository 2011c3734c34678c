// Finds the stock library, and makes every slot lead to it or to our function before it.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "direct.h"

extern "C" void* shift_front_slots[];

namespace shift::mlx5 {

#include "leads.inc"

namespace {

struct Trampoline {
  const char* name;
  const char* version;
  Lead (*lead)() noexcept = nullptr;  // null: straight to the stock library
};

constexpr Trampoline kTrampolines[] = {
#include "trampolines.inc"
};

// The dynamic linker ends a program that lacks a library or a symbol in the same way.
[[noreturn]] void die(const char* what, const char* detail) noexcept {
  const char* parts[] = {"libmlx5 (SHIFT front): ", what, " ", detail, "\n"};
  for (const char* part : parts) {
    if (write(STDERR_FILENO, part, strlen(part)) < 0) break;
  }
  abort();
}

// Our DT_NEEDED names the stock library by its path, so it is loaded already and dlopen only
// returns its handle.
__attribute__((constructor(101))) void stock_bind() noexcept {
  void* handle = dlopen(SHIFT_STOCK_LIBMLX5, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) die("stock library not loaded:", SHIFT_STOCK_LIBMLX5);
  for (size_t i = 0; i < std::size(kTrampolines); ++i) {
    const Trampoline& t = kTrampolines[i];
    void* target = dlvsym(handle, t.name, t.version);
    if (target == nullptr) continue;
    if (t.lead != nullptr) {
      const Lead lead = t.lead();
      *lead.stock = target;
      target = lead.ours;
    }
    shift_front_slots[i] = target;
  }
  dlerror();  // clears errors about symbols that an older stock library lacks
}

}  // namespace

const VirtualObjects* virtual_objects() noexcept {
  return shift_virtual_objects != nullptr ? shift_virtual_objects() : nullptr;
}

void tell_refused(const char* function, std::atomic<bool>& told) noexcept {
  if (told.exchange(true)) return;
  char line[256];
  snprintf(
      line, sizeof line,
      "%s would go past SHIFT and is refused on its devices (SHIFT_DIRECT_VERBS=unprotected: allow "
      "it, without protection)",
      function);
  virtual_objects()->warn(line);
}

void tell_unprotected(const char* function) noexcept {
  static std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  char line[256];
  snprintf(line, sizeof line,
           "%s: this process uses mlx5 direct verbs, and what it makes by them is not protected "
           "(SHIFT_DIRECT_VERBS=unprotected)",
           function);
  virtual_objects()->warn(line);
}

}  // namespace shift::mlx5

// What an empty slot leads to: the program called a function that this stock library lacks.
extern "C" [[noreturn]] __attribute__((visibility("hidden"))) void shift_front_missing(
    unsigned index) {
  shift::mlx5::die("the stock library has no", shift::mlx5::kTrampolines[index].name);
}
