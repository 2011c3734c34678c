// Writes pcapng (IETF draft-ietf-opsawg-pcapng): one section, one interface per NIC, one enhanced
// packet block per packet, times in nanoseconds.
#include "host/cli/capture_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "fabric/capture.h"

namespace cxemu {
namespace {

enum Block : uint32_t { kSection = 0x0a0d0d0a, kInterface = 1, kPacket = 6 };
enum Option : uint16_t { kEnd = 0, kInterfaceName = 2, kPacketFlags = 2, kTimeResolution = 9 };
constexpr uint32_t kByteOrder = 0x1a2b3c4d;
constexpr uint16_t kLinkEthernet = 1;

// Builds one block; everything in it is padded to four bytes.
class BlockBuilder {
 public:
  explicit BlockBuilder(Block type) {
    number<uint32_t>(type);
    number<uint32_t>(0);
  }
  template <typename T>
  void number(T value) {
    bytes(&value, sizeof value);
  }
  void bytes(const void* data, size_t size) { data_.append(static_cast<const char*>(data), size); }
  void pad() { data_.append((0 - data_.size()) & 3, '\0'); }
  void option(Option code, const void* data, size_t size) {
    number<uint16_t>(code);
    number(static_cast<uint16_t>(size));
    bytes(data, size);
    pad();
  }
  void write(std::ostream& out) {
    const auto size = static_cast<uint32_t>(data_.size() + sizeof(uint32_t));
    memcpy(data_.data() + sizeof(uint32_t), &size, sizeof size);
    number(size);
    out.write(data_.data(), static_cast<std::streamsize>(data_.size()));
  }

 private:
  std::string data_;
};

std::runtime_error failure(const std::string& path) {
  return std::runtime_error(path + ": " + strerror(errno));
}

class Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) throw failure(path);
    size_ = static_cast<size_t>(st.st_size);
    void* mapped = size_ > 0 ? mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0) : nullptr;
    close(fd);
    if (mapped == MAP_FAILED) throw failure(path);
    data_ = static_cast<const uint8_t*>(mapped);
  }
  ~Mapping() {
    if (size_ > 0) munmap(const_cast<uint8_t*>(data_), size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  const uint8_t* data_;
  size_t size_;
};

struct Entry {
  CaptureRecord record;
  const uint8_t* frame;
};

// Stops at the first incomplete record: a full disk cuts the spool there.
std::vector<Entry> entries_by_time(const Mapping& spool) {
  std::vector<Entry> entries;
  for (size_t at = 0; spool.size() - at >= sizeof(CaptureRecord);) {
    Entry entry;
    memcpy(&entry.record, spool.data() + at, sizeof entry.record);
    at += sizeof entry.record;
    if (entry.record.magic != kCaptureMagic || entry.record.frame_size > spool.size() - at ||
        entry.record.nic >= kMaxNics)
      break;
    entry.frame = spool.data() + at;
    at += entry.record.frame_size;
    entries.push_back(entry);
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.record.time_ns < b.record.time_ns;
  });
  return entries;
}

void section_write(std::ostream& out) {
  BlockBuilder block(kSection);
  block.number(kByteOrder);
  block.number<uint16_t>(1);  // version 1.0
  block.number<uint16_t>(0);
  block.number<int64_t>(-1);  // the length is not given
  block.write(out);
}

void interface_write(std::ostream& out, const std::string& name) {
  BlockBuilder block(kInterface);
  block.number(kLinkEthernet);
  block.number<uint16_t>(0);
  block.number<uint32_t>(0);  // packets are not cut short
  block.option(kInterfaceName, name.data(), name.size());
  const uint8_t nanoseconds = 9;
  block.option(kTimeResolution, &nanoseconds, sizeof nanoseconds);
  block.option(kEnd, nullptr, 0);
  block.write(out);
}

void packet_write(std::ostream& out, const Entry& entry, uint32_t interface) {
  BlockBuilder block(kPacket);
  block.number(interface);
  block.number(static_cast<uint32_t>(entry.record.time_ns >> 32));
  block.number(static_cast<uint32_t>(entry.record.time_ns));
  block.number(entry.record.frame_size);
  block.number(entry.record.frame_size);
  block.bytes(entry.frame, entry.record.frame_size);
  block.pad();
  const auto flags = static_cast<uint32_t>(entry.record.direction);
  block.option(kPacketFlags, &flags, sizeof flags);
  block.option(kEnd, nullptr, 0);
  block.write(out);
}

}  // namespace

uint64_t capture_file_write(const Fabric& fabric, const std::string& spool,
                            const std::string& out_path) {
  const Mapping mapping(spool);
  std::ofstream out(out_path, std::ios::binary | std::ios::trunc);
  section_write(out);
  uint32_t interface_of[kMaxNics] = {};
  uint32_t interfaces = 0;
  for (int i = 0; i < kMaxNics; ++i) {
    const FabricNic& nic = fabric->nic[i];
    if (nic.used.load(std::memory_order_acquire) == 0) continue;
    interface_of[i] = interfaces++;
    interface_write(
        out, std::string(fabric->host_name[nic.host]) + "/mlx5_" + std::to_string(nic.index));
  }
  const std::vector<Entry> entries = entries_by_time(mapping);
  for (const Entry& entry : entries) packet_write(out, entry, interface_of[entry.record.nic]);
  out.close();
  if (!out) throw failure(out_path);
  return entries.size();
}

}  // namespace cxemu
