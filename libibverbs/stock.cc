// Finds the stock library and binds everything that leads to it: the function table and the slots
// of the trampolines.
#include "stock.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iterator>

#include "exports_newer.h"

namespace shift::front {

StockVerbs stock;
QueryGidType stock_query_gid_type = nullptr;
thread_local int StockCall::depth_ = 0;

}  // namespace shift::front

extern "C" {

extern void* shift_front_slots[];

// The exported variables. If the stock library was linked so that its own references can be
// interposed, it uses these; otherwise stock_data_sync() copies the values.
#define SHIFT_FRONT_DATA(name, size)                             \
  __attribute__((visibility("default"))) extern char name[size]; \
  char name[size];
#include "data.inc"
#undef SHIFT_FRONT_DATA
}

namespace {

struct Trampoline {
  const char* name;
  const char* version;  // null: a private symbol, found in any version
};

constexpr Trampoline kTrampolines[] = {
#include "trampolines.inc"
};

struct Variable {
  const char* name;
  char* copy;
  size_t size;
  const char* original;
};

Variable variables[] = {
#define SHIFT_FRONT_DATA(name, size) {#name, name, size, nullptr},
#include "data.inc"
#undef SHIFT_FRONT_DATA
};

void* stock_handle = nullptr;

pthread_once_t layer_once = PTHREAD_ONCE_INIT;
bool layer_on = false;

// A constructor cannot return an error, and nothing works without the stock library. The dynamic
// linker ends a program that lacks a library or a symbol in the same way.
[[noreturn]] void die(const char* what, const char* detail) noexcept {
  const char* parts[] = {"libibverbs (SHIFT front): ", what, " ", detail, "\n"};
  for (const char* part : parts) {
    if (write(STDERR_FILENO, part, strlen(part)) < 0) break;
  }
  abort();
}

template <typename Function>
void bind(void* handle, Function& function, const char* name, const char* version) noexcept {
  function = reinterpret_cast<Function>(dlvsym(handle, name, version));
}

// A front that was copied or linked over the stock library would call itself without end.
bool is_this_library(void* handle) noexcept {
  const void *theirs = nullptr, *ours = nullptr;
  Dl_info info;
  return dlinfo(handle, RTLD_DI_LINKMAP, &theirs) == 0 &&
         dladdr1(&stock_handle, &info, const_cast<void**>(&ours), RTLD_DL_LINKMAP) != 0 &&
         theirs == ours;
}

// Our DT_NEEDED names the stock library by its path, so it is loaded already and dlopen only
// returns its handle. 101 is the first priority a library may use: plug-ins that a program is
// linked with call verbs_register_driver from their constructors.
__attribute__((constructor(101))) void stock_bind() noexcept {
  void* handle = dlopen(SHIFT_STOCK_LIBIBVERBS, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) die("stock library not loaded:", SHIFT_STOCK_LIBIBVERBS);
  if (is_this_library(handle)) die("in the place of the stock library:", SHIFT_STOCK_LIBIBVERBS);
  stock_handle = handle;
  using shift::front::stock;
#define SHIFT_BIND(name, version) bind(handle, stock.name, "ibv_" #name, version);
  SHIFT_STOCK_FUNCTIONS(SHIFT_BIND)
#undef SHIFT_BIND
  bind(handle, stock.query_gid_ex, "_ibv_query_gid_ex", "IBVERBS_1.11");
  bind(handle, stock.query_gid_table, "_ibv_query_gid_table", "IBVERBS_1.11");
  shift::front::stock_query_gid_type =
      reinterpret_cast<shift::front::QueryGidType>(dlsym(handle, "ibv_query_gid_type"));
  for (size_t i = 0; i < std::size(kTrampolines); ++i) {
    const Trampoline& t = kTrampolines[i];
    void* target = t.version != nullptr ? dlvsym(handle, t.name, t.version) : dlsym(handle, t.name);
    if (target != nullptr) shift_front_slots[i] = target;
  }
  for (Variable& variable : variables) {
    variable.original = static_cast<const char*>(dlsym(handle, variable.name));
  }
  shift::front::newer_verbs_bind();
  // dlvsym leaves an error message for each symbol that an older stock library lacks. The program's
  // own dlerror() must not return it.
  dlerror();
}

// The provider reads the whole configuration. SHIFT_DISABLE must work even if the provider cannot.
void layer_decide() {
  const char* disable = secure_getenv("SHIFT_DISABLE");
  if (disable != nullptr && strcmp(disable, "1") == 0) return;
  layer_on = shift::ops::init(shift::front::stock);
}

}  // namespace

// What an empty slot leads to: the program called a function that this stock library lacks.
extern "C" [[noreturn]] __attribute__((visibility("hidden"))) void shift_front_missing(
    unsigned index) {
  die("the stock library has no", kTrampolines[index].name);
}

namespace shift::front {

void* stock_symbol(const char* name) noexcept {
  void* found = dlsym(stock_handle, name);
  if (found == nullptr) dlerror();  // the message is not for the program
  return found;
}

bool layer_enabled() noexcept {
  pthread_once(&layer_once, layer_decide);
  return layer_on;
}

void stock_data_sync() noexcept {
  for (const Variable& variable : variables) {
    const char* original = variable.original;
    if (original == nullptr || original == variable.copy) continue;
    // Only one of the two is in use; the other stays zero.
    for (size_t i = 0; i < variable.size; ++i) variable.copy[i] |= original[i];
  }
}

}  // namespace shift::front
