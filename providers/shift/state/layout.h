// What a process with the layer tells of itself: the records of its state file, which shiftctl
// reads. The file lies in a folder that only the process's user and root can enter (directory.h),
// and stays when the process crashes.
//
// A file is a row of places of kPlaceSize bytes: one ProcessRecord (kProcessPlaces places), then
// kFaults places that hold the last faults in turn, then kDevices places for devices, then one
// place for each QP, up to kGroups. A place of a device or a QP is free when its kind is kFree; the
// file ends behind the last place that was ever used. Numbers have the byte order of the machine.
//
// Each record is written with one pwrite(2), which fills its places to their end. A reader that
// sees a wrong sum has met a write halfway and reads again; a sum that stays wrong means a damaged
// record, which the reader leaves out. Texts end with a zero byte and hold UTF-8; a text that was
// too long is cut. All of it may come from a program that lies, so a reader checks each number
// against its range.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace shift::state {

inline constexpr uint64_t kMagic = 0x4554415453464853;  // it reads "SHFSTATE" in the file
// Grows when the meaning of what was there before changes. A reader refuses a version that it does
// not know, with a line that names both.
inline constexpr uint32_t kLayoutVersion = 1;
inline constexpr size_t kPlaceSize = 256;
inline constexpr size_t kProcessPlaces = 32;  // 8 KiB
inline constexpr size_t kFaults = 64;
inline constexpr size_t kDevices = 64;
inline constexpr size_t kGroups = 65536;
inline constexpr size_t kMembers = 8;  // NICs in a device group

inline constexpr size_t kFaultsBegin = kProcessPlaces;
inline constexpr size_t kDevicesBegin = kFaultsBegin + kFaults;
inline constexpr size_t kGroupsBegin = kDevicesBegin + kDevices;
inline constexpr size_t kFileMax = (kGroupsBegin + kGroups) * kPlaceSize;

enum class Kind : uint8_t { kFree, kProcess, kFault, kDevice, kGroup, kTotals, kShares };

// The first bytes of every record. `sum` is made of all other bytes of the record.
struct Head {
  uint32_t sum = 0;
  Kind kind = Kind::kFree;
  uint8_t reserved[3] = {};
};

using DeviceName = std::array<char, 32>;

// Counts of the whole life of a process; none of them ever shrinks.
struct Counters {
  static constexpr size_t kDetectors = 16;  // indices are those of group::Detector
  static constexpr size_t kRefusals = 16;   // indices are those of wire::RefuseReason
  // Upper bounds in microseconds; one more bucket takes what is longer.
  static constexpr std::array<uint32_t, 13> kPauseBounds{500,     1000,    2000,   5000,   10000,
                                                         20000,   50000,   100000, 200000, 500000,
                                                         1000000, 2000000, 5000000};

  // Changes of path, by what noticed the fault first; kProbe: a better path, or a drained NIC.
  std::array<uint64_t, kDetectors> switches{};
  // How long each change took, from its detection to the replay's end; not cumulative.
  std::array<uint64_t, kPauseBounds.size() + 1> pauses{};
  uint64_t pause_us = 0;   // the sum of these times
  uint64_t replayed = 0;   // requests posted again
  uint64_t completed = 0;  // requests completed by the peer's word
  // QPs that were given their error although they were protected, by the reason.
  std::array<uint64_t, kRefusals> failed{};
  uint64_t stock_qps = 0;        // QPs made that the layer does not protect, such as UD
  uint64_t protected_qps = 0;    // QPs that found their peer
  uint64_t unprotected_qps = 0;  // RC QPs for which no peer was found
  uint64_t drains_called_off = 0;
};

struct ProcessRecord {
  static constexpr Kind kKind = Kind::kProcess;
  static constexpr size_t kPlaces = kProcessPlaces;

  Head head{};
  uint64_t magic = kMagic;
  uint32_t layout_version = kLayoutVersion;
  uint32_t pid = 0;  // as the process itself sees it
  uint32_t uid = 0;
  uint32_t faults = 0;     // so many faults were written; the last one is at (faults - 1) % kFaults
  int64_t started_ns = 0;  // when the layer started, of the wall clock
  int64_t written_ns = 0;  // when the file was written last, of the wall clock
  uint8_t is_closed = 0;   // the process has ended in order
  uint8_t has_key = 0;     // the job has a key (SHIFT_KEY_FILE)
  uint8_t wire_version = 0;
  uint8_t reserved = 0;
  uint32_t lost_groups = 0;   // QPs that found no place in the file
  uint32_t lost_devices = 0;  // devices that found none
  uint32_t reserved2 = 0;
  std::array<char, 24> version{};   // of the layer
  std::array<char, 64> program{};   // the name of the program
  std::array<char, 512> command{};  // its arguments, with blanks between them
  // Why nothing is protected in the whole process; empty: something is, or nothing was asked for.
  std::array<char, 256> problem{};
  // The settings: a line "NAME=VALUE<TAB>SOURCE" for each.
  std::array<char, 4096> settings{};
  Counters counters;
};

// The file of totals: counts of a user's processes that have ended.
struct TotalsRecord {
  static constexpr Kind kKind = Kind::kTotals;
  static constexpr size_t kPlaces = kProcessPlaces;

  Head head{};
  uint64_t magic = kMagic;
  uint32_t layout_version = kLayoutVersion;
  uint32_t processes = 0;
  Counters counters;
};

// Copies a text, cut where it does not fit, and fills the rest with zeros.
inline void text_set(std::span<char> to, std::string_view text) {
  std::memset(to.data(), 0, to.size());
  std::memcpy(to.data(), text.data(), text.size() < to.size() ? text.size() : to.size() - 1);
}
// The text up to its zero byte, or all of it if a liar has left that byte out.
inline std::string_view text_of(std::span<const char> text) {
  return {text.data(), strnlen(text.data(), text.size())};
}

// A device that the program has opened, with the NICs that stand in for it.
struct DeviceRecord {
  static constexpr Kind kKind = Kind::kDevice;
  static constexpr size_t kPlaces = 1;

  Head head{};
  uint8_t members = 0;  // how many NICs the group has, the default first; 1: it is not protected
  uint8_t up = 0;       // bit n: NIC n can carry traffic
  uint8_t drained = 0;  // bit n: an operator has drained NIC n
  uint8_t late = 0;     // bit n: NIC n has not answered a command in time
  // QPs that the layer does not protect, such as UD, that were ever made there: it does not see
  // their end.
  uint32_t stock_qps = 0;
  // The NICs' names. With up to four NICs each has a quarter of it, else an eighth.
  std::array<char, 128> names{};
  std::array<char, 96> problem{};  // why the device is not protected; empty: it is

  // Valid for a NIC below `members`, which must be set before.
  std::string_view name(size_t nic) const {
    return text_of(std::span(names).subspan(nic * name_size(), name_size()));
  }
  void name_set(size_t nic, std::string_view text) {
    text_set(std::span(names).subspan(nic * name_size(), name_size()), text);
  }

 private:
  size_t name_size() const { return names.size() / (members <= 4 ? 4 : 8); }
};

// A protected QP, or an RC QP that would be if its peer had the layer.
struct GroupRecord {
  static constexpr Kind kKind = Kind::kGroup;
  static constexpr size_t kPlaces = 1;
  static constexpr uint8_t kNoPath = 0xff;

  Head head{};
  uint32_t qpn = 0, peer_qpn = 0;  // as the applications know them
  int64_t since_ns = 0;            // when the state was entered, of the wall clock
  DeviceName device{};             // that the application made the QP on
  // The path: the NICs' places in their device groups, here and at the peer; kNoPath between two.
  uint8_t member = 0, peer_member = 0;
  uint8_t state = 0;          // fsm::State
  uint8_t is_leader = 0;      // this end picks the paths
  uint8_t is_self = 0;        // the QP is connected to itself
  uint8_t ready_members = 0;  // bit n: a path beside the current one is ready over NIC n
  uint8_t peer_members = 0;
  uint8_t peer_up = 0;                    // bit n: the peer's NIC n works
  uint8_t avoided = 0, peer_avoided = 0;  // bit n: this QP shall leave NIC n, here or at the peer
  uint8_t reserved[6] = {};
  uint32_t epoch = 0;                         // how often the path was left
  uint32_t pause_us = 0;                      // of the last change of path
  std::array<uint8_t, 16> gid{}, peer_gid{};  // of the application's connection
  // Why the QP is not protected, or has no second path; empty: it has one.
  std::array<char, 112> problem{};
};

// One change of path, or a QP that failed; or an incident: what was found out about a fault of a
// NIC. An incident has no QP: `epoch` counts the QPs that left, `from` is the NIC here, `to` the
// peer's (empty: all peers), `pause_us` the time from the evidence to the verdict, and `cause` the
// evidence.
struct FaultRecord {
  static constexpr uint8_t kIncident = 0x80;  // in `place`, with the number of a control::Place
  static constexpr Kind kKind = Kind::kFault;
  static constexpr size_t kPlaces = 1;

  Head head{};
  uint32_t qpn = 0;
  uint32_t epoch = 0;
  int64_t time_ns = 0;  // of the wall clock, when it was over
  DeviceName from{}, to{};
  uint8_t detector = 0;  // group::Detector
  uint8_t failed = 0;    // the application got its error
  uint8_t refusal = 0;   // wire::RefuseReason, if it failed
  uint8_t place = 0;     // 0: no incident
  uint32_t pause_us = 0, fence_us = 0, notice_us = 0;
  uint32_t replayed = 0, completed = 0;
  std::array<char, 96> cause{};
};

template <typename Record>
constexpr bool kFits =
    std::is_trivially_copyable_v<Record>&& std::has_unique_object_representations_v<Record> &&
    sizeof(Record) <= Record::kPlaces* kPlaceSize;
static_assert(kFits<ProcessRecord> && kFits<TotalsRecord> && kFits<DeviceRecord> &&
              kFits<GroupRecord> && kFits<FaultRecord>);

// FNV-1a over all bytes of the record behind `sum`.
template <typename Record>
uint32_t sum_of(const Record& record) {
  unsigned char bytes[sizeof(Record)];
  std::memcpy(bytes, &record, sizeof bytes);
  uint32_t sum = 2166136261u;
  for (size_t i = sizeof(record.head.sum); i < sizeof bytes; i++)
    sum = (sum ^ bytes[i]) * 16777619u;
  return sum;
}
// Writes kind and sum: the record's last change before it is written.
template <typename Record>
void seal(Record& record) {
  record.head.kind = Record::kKind;
  record.head.sum = sum_of(record);
}
template <typename Record>
bool is_whole(const Record& record) {
  return record.head.kind == Record::kKind && record.head.sum == sum_of(record);
}

}  // namespace shift::state
