// The members of a device group, and the virtual device that the application finds in its list.
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>

namespace shift::group {

// Members of a device group, by their place in it. The NIC that the application opened comes first.
inline constexpr int kDefault = 0;
inline constexpr int kMembersMax = 8;
inline constexpr int kNoMember = -1;

// Holds one T for each member.
template <typename T>
class PerMember {
 public:
  constexpr T& operator[](int member) {
    assert(member >= 0 && member < kMembersMax);
    return items_[member];
  }
  constexpr const T& operator[](int member) const {
    assert(member >= 0 && member < kMembersMax);
    return items_[member];
  }
  constexpr T* begin() { return items_; }
  constexpr const T* begin() const { return items_; }
  constexpr T* end() { return items_ + kMembersMax; }
  constexpr const T* end() const { return items_ + kMembersMax; }
  static constexpr int size() { return kMembersMax; }

 private:
  T items_[kMembersMax]{};
};

// Made together with a list of devices, and not changed until it is freed.
struct Device {
  ibv_device dev;   // what the application holds, with the names and paths of the default NIC
  char zeros[512];  // stock providers read beyond the end of an ibv_device (verbs_device)
  // Valid while the real device list is held; an open context has its own.
  PerMember<ibv_device*> real{};
  PerMember<uint8_t> capacity{};  // what each can carry for the others, compared with them
  int member_count = 0;
};

}  // namespace shift::group
