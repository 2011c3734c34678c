// The job keys: secrets that all processes of a job share. With them the processes prove to each
// other that they belong to the job, and hide what they say.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace shift {

inline constexpr size_t kJobKeySize = 32;  // bytes
inline constexpr int kJobKeysMax = 8;

// Makes libsodium ready, once for the process; it is thread-safe. False: nothing of libsodium may
// be used.
[[nodiscard]] bool crypto_ready() noexcept;

// How log lines and tools write an id: 16 hexadecimal digits.
std::string job_key_id_text(uint64_t id);

// The job keys of this process. The first is the one to speak with; the others are accepted, too,
// so that the processes of a job can go over to a new key one after the other. The secrets lie in
// pages of their own, which are in no core dump, and which a fork child finds filled with zeros: it
// has no keys. Nothing changes after the making, so all threads may read.
class JobKeys {
 public:
  // Reads a file of keys. Null when the file cannot be used: `problem` then holds one line that
  // says what, why and what to do, and nothing of the file's content. A single bad line refuses
  // the file.
  static std::unique_ptr<JobKeys> read(const std::string& path, std::string& problem);
  // Takes the secrets that are given; null when there are none, too many or two alike.
  static std::unique_ptr<JobKeys> make(std::span<const std::array<uint8_t, kJobKeySize>> secrets);

  JobKeys(const JobKeys&) = delete;
  JobKeys& operator=(const JobKeys&) = delete;
  ~JobKeys();

  int count() const noexcept;
  // Bytes that stay where they are as long as this object lives.
  std::span<const uint8_t, kJobKeySize> secret(int index) const noexcept;
  // A name of the key that may cross the wire in clear: it tells nothing of the secret. Never 0.
  uint64_t id(int index) const noexcept;
  std::optional<int> find(uint64_t id) const noexcept;

 private:
  struct Area;
  explicit JobKeys(Area* area) noexcept : area_(area) {}
  static std::unique_ptr<JobKeys> make_empty(std::string& why);
  bool load(const std::string& path, std::string& why);
  bool parse(size_t size, std::string& why);
  bool take_next() noexcept;

  Area* area_;
};

}  // namespace shift
