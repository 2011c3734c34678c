#include "key_file.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "util/job_keys.h"

namespace shift::run {
namespace {

constexpr std::string_view kHead =
    "# A job key of SHIFT, see shift-run(1). It is a secret that all processes of a job share.\n";

// Sets errno where it returns false.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool write_key(int fd) {
  std::array<uint8_t, kJobKeySize> secret;
  std::array<char, 2 * kJobKeySize + 1> digits;  // a zero ends it
  randombytes_buf(secret.data(), secret.size());
  sodium_bin2hex(digits.data(), digits.size(), secret.data(), secret.size());
  digits.back() = '\n';
  const bool is_written = write_all(fd, kHead) && write_all(fd, {digits.data(), digits.size()});
  sodium_memzero(secret.data(), secret.size());
  sodium_memzero(digits.data(), digits.size());
  return is_written;
}

}  // namespace

std::string key_file_check(const std::string& path) {
  std::string problem;
  (void)JobKeys::read(path, problem);
  return problem;
}

std::string key_file_ids(const std::string& path, std::string& ids) {
  std::string problem;
  const auto keys = JobKeys::read(path, problem);
  for (int i = 0; keys && i < keys->count(); i++) ids += job_key_id_text(keys->id(i)) + "\n";
  return problem;
}

std::string key_file_make(const std::string& path) {
  if (!crypto_ready()) return "libsodium does not start";
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0 && errno == EEXIST) return path + " exists already, and a key in use may be in it";
  if (fd < 0) return path + ": " + strerror(errno);
  // The umask may have taken permissions away. A full disk may show as late as in close().
  const bool is_written = fchmod(fd, 0600) == 0 && write_key(fd) && fsync(fd) == 0;
  const int error = is_written ? 0 : errno;
  const bool is_closed = close(fd) == 0;
  if (is_written && is_closed) return "";
  const std::string why = strerror(is_written ? errno : error);
  unlink(path.c_str());
  return path + ": " + why;
}

}  // namespace shift::run
