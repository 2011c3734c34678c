// Reads the relocations of the calling module, which name what it is linked with.
#include "caller.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace shift::mlx5 {
namespace {

// With one of these a module drives queues by itself.
constexpr std::string_view kQueueFunctions[] = {
    "mlx5dv_init_obj",
    "mlx5dv_create_qp",
    "mlx5dv_qp_ex_from_ibv_qp_ex",
    "mlx5dv_devx_obj_create",
};

// The tables of a module's dynamic section. The dynamic linker has made addresses of its pointers.
struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const ElfW(Rela) * relocations[2] = {};
  size_t bytes[2] = {};
};

Tables tables_of(const ElfW(Dyn) * entry) noexcept {
  Tables found;
  for (; entry->d_tag != DT_NULL; ++entry) {
    const auto pointer = entry->d_un.d_ptr;
    switch (entry->d_tag) {
      case DT_SYMTAB:
        found.symbols = reinterpret_cast<const ElfW(Sym)*>(pointer);
        break;
      case DT_STRTAB:
        found.strings = reinterpret_cast<const char*>(pointer);
        break;
      case DT_JMPREL:
        found.relocations[0] = reinterpret_cast<const ElfW(Rela)*>(pointer);
        break;
      case DT_PLTRELSZ:
        found.bytes[0] = entry->d_un.d_val;
        break;
      case DT_RELA:
        found.relocations[1] = reinterpret_cast<const ElfW(Rela)*>(pointer);
        break;
      case DT_RELASZ:
        found.bytes[1] = entry->d_un.d_val;
        break;
      default:
        break;
    }
  }
  return found;
}

}  // namespace

bool is_linked_with_queues(const void* address) noexcept {
  Dl_info ignored;
  link_map* module = nullptr;
  if (dladdr1(address, &ignored, reinterpret_cast<void**>(&module), RTLD_DL_LINKMAP) == 0 ||
      module == nullptr || module->l_ld == nullptr) {
    return true;
  }
  const Tables tables = tables_of(module->l_ld);
  if (tables.symbols == nullptr || tables.strings == nullptr) return true;
  for (size_t kind = 0; kind < std::size(tables.relocations); ++kind) {
    const size_t count = tables.relocations[kind] != nullptr
                             ? tables.bytes[kind] / sizeof *tables.relocations[kind]
                             : 0;
    for (size_t i = 0; i < count; ++i) {
      // Both ELF classes that are supported have the symbol in the upper half.
      const auto symbol = tables.relocations[kind][i].r_info >> 32;
      const std::string_view name = tables.strings + tables.symbols[symbol].st_name;
      if (std::ranges::find(kQueueFunctions, name) != std::end(kQueueFunctions)) return true;
    }
  }
  return false;
}

}  // namespace shift::mlx5
