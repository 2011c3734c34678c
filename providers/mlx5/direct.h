// How calls of direct verbs reach our functions: each exported symbol is a jump through a slot. The
// slots of functions that take verbs objects lead to our functions, which first find the NIC's own
// objects.
#pragma once

#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <type_traits>

#include "util/virtual_objects.h"

namespace shift::mlx5 {

// Stands between a slot and the stock library: our function, and where it finds the stock one.
struct Lead {
  void* ours;
  void** stock;
};

// What is beneath virtual objects. nullptr in a program without the layer, where no object is
// virtual.
const VirtualObjects* virtual_objects() noexcept;

template <auto VirtualObjects::*find, typename Object>
Object* find_real(Object* object) noexcept {
  const VirtualObjects* objects = virtual_objects();
  return objects != nullptr && object != nullptr ? (objects->*find)(object) : object;
}
inline ibv_device* real(ibv_device* o) noexcept {
  return find_real<&VirtualObjects::device>(o);
}
inline ibv_context* real(ibv_context* o) noexcept {
  return find_real<&VirtualObjects::context>(o);
}
inline ibv_pd* real(ibv_pd* o) noexcept {
  return find_real<&VirtualObjects::pd>(o);
}
inline ibv_cq* real(ibv_cq* o) noexcept {
  return find_real<&VirtualObjects::cq>(o);
}
inline ibv_srq* real(ibv_srq* o) noexcept {
  return find_real<&VirtualObjects::srq>(o);
}
inline ibv_qp* real(ibv_qp* o) noexcept {
  return find_real<&VirtualObjects::qp>(o);
}

template <typename Object>
bool is_virtual(Object* object) noexcept {
  return real(object) != object;
}

inline DirectVerbs mode() noexcept {
  const VirtualObjects* objects = virtual_objects();
  return objects != nullptr ? objects->mode() : DirectVerbs::kUnprotected;
}

// Logs one line for each function that was refused, and one line for all functions that are allowed
// to go past the layer.
void tell_refused(const char* function, std::atomic<bool>& told) noexcept;
void tell_unprotected(const char* function) noexcept;

// Whether `function` may go past the layer with this virtual object. If not, the refusal is logged,
// and the caller returns EOPNOTSUPP.
template <typename Object>
bool may_pass(Object* object, const char* function, std::atomic<bool>& told) noexcept {
  bool may = mode() == DirectVerbs::kUnprotected;
  if constexpr (std::is_same_v<Object, ibv_qp>) may = may && virtual_objects()->let_go_qp(object);
  if constexpr (std::is_same_v<Object, ibv_cq>) may = may && virtual_objects()->let_go_cq(object);
  if constexpr (std::is_same_v<Object, ibv_srq>) may = may && virtual_objects()->let_go_srq(object);
  may ? tell_unprotected(function) : tell_refused(function, told);
  return may;
}

// EOPNOTSUPP as the function's type demands: an error number, or null with errno.
template <typename Result>
Result refusal() noexcept {
  if constexpr (std::is_pointer_v<Result>) {
    errno = EOPNOTSUPP;
    return nullptr;
  } else {
    return EOPNOTSUPP;
  }
}

// The name of a function as a template argument.
template <size_t size>
struct Name {
  constexpr Name(const char (&from)[size]) { std::copy_n(from, size, text); }  // NOLINT
  char text[size];
};

// A function whose first argument may be virtual, and which only asks, or makes an object that
// belongs to one NIC anyway.
template <auto* function>
struct Asks;
template <typename Result, typename Object, typename... More, Result (*function)(Object*, More...)>
struct Asks<function> {
  static inline Result (*stock)(Object*, More...) = nullptr;
  static Result call(Object* object, More... more) { return stock(real(object), more...); }
};

// A function that would go past the layer if its first argument is virtual.
template <auto* function, Name name>
struct Bypasses;
template <typename Result, typename Object, typename... More, Name name,
          Result (*function)(Object*, More...)>
struct Bypasses<function, name> {
  static inline Result (*stock)(Object*, More...) = nullptr;
  static inline std::atomic<bool> told{false};
  static Result call(Object* object, More... more) {
    if (is_virtual(object) && !may_pass(object, name.text, told)) return refusal<Result>();
    return stock(real(object), more...);
  }
};

template <typename Between>
Lead lead_through() noexcept {
  return {reinterpret_cast<void*>(&Between::call), reinterpret_cast<void**>(&Between::stock)};
}

// Defines the lead that the table of symbols refers to (leads.inc).
#define SHIFT_LEAD(name, ...)           \
  Lead lead_##name() noexcept {         \
    return lead_through<__VA_ARGS__>(); \
  }
#define SHIFT_ASKS(name) SHIFT_LEAD(name, Asks<&::name>)
#define SHIFT_BYPASSES(name) SHIFT_LEAD(name, Bypasses<&::name, #name>)

}  // namespace shift::mlx5
