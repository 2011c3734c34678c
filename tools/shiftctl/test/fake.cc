#include "fake.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "state/directory.h"

namespace shift::ctl::test {

namespace {

template <typename Record>
void put(std::string& bytes, size_t place, Record record) {
  seal(record);
  const size_t begin = place * state::kPlaceSize;
  if (bytes.size() < begin + Record::kPlaces * state::kPlaceSize)
    bytes.resize(begin + Record::kPlaces * state::kPlaceSize);
  std::memcpy(bytes.data() + begin, &record, sizeof record);
}

}  // namespace

Fake Fake::with(uint32_t pid, const std::vector<std::string>& nics) {
  Fake fake;
  fake.process.pid = pid;
  fake.process.uid = ::geteuid();
  fake.process.started_ns = fake.process.written_ns = 1'700'000'000'000'000'000;
  state::text_set(fake.process.version, "0.1.0");
  state::text_set(fake.process.program, "trainer");
  state::text_set(fake.process.command, "trainer --steps 10");
  state::text_set(fake.process.settings, "SHIFT_PORT=9473\tdefault\nSHIFT_LOG=info\tenvironment\n");
  if (nics.empty()) return fake;
  state::DeviceRecord device;
  device.members = static_cast<uint8_t>(nics.size());
  device.up = static_cast<uint8_t>((1u << nics.size()) - 1);
  for (size_t i = 0; i < nics.size(); i++) device.name_set(i, nics[i]);
  fake.devices.push_back(device);
  return fake;
}

state::GroupRecord& Fake::add_qp(uint32_t qpn, uint8_t ready_members, fsm::State state) {
  state::GroupRecord group;
  group.qpn = qpn;
  group.peer_qpn = qpn + 0x1000;
  group.since_ns = process.started_ns;
  state::text_set(group.device, devices.front().name(0));
  group.state = static_cast<uint8_t>(state);
  group.ready_members = ready_members;
  if (state != fsm::State::kUnbound) group.peer_members = 2, group.peer_up = 3;
  group.peer_gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2};
  groups.push_back(group);
  return groups.back();
}

state::FaultRecord& Fake::add_fault(uint32_t qpn, int64_t time_ns, const std::string& cause) {
  state::FaultRecord fault;
  fault.qpn = qpn;
  fault.time_ns = time_ns;
  fault.detector = 1;
  fault.pause_us = 4120;
  state::text_set(fault.from, devices.front().name(0));
  state::text_set(fault.to, devices.front().name(1));
  state::text_set(fault.cause, cause);
  faults.push_back(fault);
  process.faults++;
  return faults.back();
}

std::string Fake::bytes() const {
  std::string bytes;
  put(bytes, 0, process);
  for (size_t i = 0; i < faults.size(); i++) put(bytes, state::kFaultsBegin + i, faults[i]);
  for (size_t i = 0; i < devices.size(); i++) put(bytes, state::kDevicesBegin + i, devices[i]);
  for (size_t i = 0; i < groups.size(); i++) put(bytes, state::kGroupsBegin + i, groups[i]);
  return bytes;
}

std::string totals_bytes(const state::Counters& counters) {
  state::TotalsRecord totals;
  totals.counters = counters;
  std::string bytes;
  put(bytes, 0, totals);
  return bytes;
}

UniqueFd file_write(const std::string& base, uid_t uid, const std::string& name,
                    const std::string& bytes) {
  const std::string folder = state::user_directory(base, uid);
  if (::mkdir(folder.c_str(), 0700) == 0 && uid != ::geteuid() &&
      ::chown(folder.c_str(), uid, static_cast<gid_t>(-1)) != 0)
    return {};
  const std::string path = folder + "/" + name;
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd ||
      ::pwrite(fd.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return {};
  if (uid != ::geteuid() && ::fchown(fd.get(), uid, static_cast<gid_t>(-1)) != 0) return {};
  return fd;
}

bool lock_take(int fd) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return ::fcntl(fd, F_SETLK, &lock) == 0;
}

}  // namespace shift::ctl::test
