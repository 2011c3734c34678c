// Reads job keys into pages that no dump and no fork child has.
#include "util/job_keys.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>

#include "util/trim.h"
#include "util/unique_fd.h"

namespace shift {
namespace {

constexpr size_t kKeyFileMax = 4096;
constexpr size_t kDigits = 2 * kJobKeySize;

constexpr char kNoFile[] =
    "there is no such file; make one with shift-run --make-key, or copy the job's";
constexpr char kNoName[] =
    "its name is empty; name a file, or take the setting away where the job has no key";
constexpr char kNoKey[] =
    "there is no key in it; make one with shift-run --make-key, or copy the job's";

uint64_t id_of(std::span<const uint8_t, kJobKeySize> secret) noexcept {
  constexpr std::string_view kLabel = "SHIFT job key id";
  crypto_generichash_state state;
  std::array<uint8_t, crypto_generichash_BYTES> hash;
  crypto_generichash_init(&state, nullptr, 0, hash.size());
  crypto_generichash_update(&state, reinterpret_cast<const uint8_t*>(kLabel.data()), kLabel.size());
  crypto_generichash_update(&state, secret.data(), secret.size());
  crypto_generichash_final(&state, hash.data(), hash.size());
  sodium_memzero(&state, sizeof(state));
  uint64_t id = 0;
  for (int i = 7; i >= 0; i--) id = id << 8 | hash[static_cast<size_t>(i)];
  return id != 0 ? id : 1;
}

// Problems take one line, whatever the path is.
std::string printable(std::string path) {
  if (path.empty()) return "\"\"";
  std::ranges::replace_if(
      path, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return path;
}

std::string open_problem(int error) {
  if (error == ENOENT) return kNoFile;
  if (error == ELOOP) return "it is a symbolic link; name the file itself";
  if (error == ENXIO) return "it is not a regular file; give the path of one";
  return std::string(strerror(error)) + "; give a file that this user may read";
}

// What the owner and the kind of the open file have against it; empty: nothing.
std::string key_file_problem(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return "it is not a regular file; give the path of one";
  if (status.st_uid != geteuid() && status.st_uid != 0)
    return "it belongs to user " + std::to_string(status.st_uid) +
           ", who is neither root nor the user of this process; make a copy that does";
  if ((status.st_mode & 077) != 0) {
    char mode[8];
    snprintf(mode, sizeof(mode), "%04o", static_cast<unsigned>(status.st_mode & 07777));
    return std::string("others than its owner may use it (its mode is ") + mode +
           "); run chmod 600 on it, and take a new key if others had the time to read it";
  }
  if (status.st_size > static_cast<off_t>(kKeyFileMax))
    return "it is larger than " + std::to_string(kKeyFileMax) + " bytes; give a file of keys";
  return "";
}

}  // namespace

// The count lies here, too, so that it is 0 where the secrets are zeros.
struct JobKeys::Area {
  int count;
  std::array<uint64_t, kJobKeysMax> ids;
  std::array<std::array<uint8_t, kJobKeySize>, kJobKeysMax> secrets;
  std::array<char, kKeyFileMax + 1> text;  // what was read; wiped once the keys are known
};

bool crypto_ready() noexcept {
  // Where the kernel gives no random numbers, sodium_init() may end the process.
  static const bool is_ready = [] {
    uint8_t byte;
    return getrandom(&byte, sizeof byte, 0) == sizeof byte && sodium_init() >= 0;
  }();
  return is_ready;
}

std::string job_key_id_text(uint64_t id) {
  char text[17];
  snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(id));
  return text;
}

std::unique_ptr<JobKeys> JobKeys::make_empty(std::string& why) {
  if (!crypto_ready()) {
    why = "libsodium does not start; the system may lack random numbers";
    return nullptr;
  }
  void* const area =
      mmap(nullptr, sizeof(Area), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) {
    why = "there is no memory for it";
    return nullptr;
  }
  std::unique_ptr<JobKeys> keys(new (std::nothrow) JobKeys(static_cast<Area*>(area)));
  if (!keys) {
    munmap(area, sizeof(Area));
    why = "there is no memory for it";
    return nullptr;
  }
  if (madvise(area, sizeof(Area), MADV_DONTDUMP) != 0 ||
      madvise(area, sizeof(Area), MADV_WIPEONFORK) != 0) {
    why = "this kernel cannot keep keys out of dumps and forked children; take Linux 4.14 or newer";
    return nullptr;
  }
  // A process may be allowed to lock no memory at all; then the keys may reach the swap device.
  (void)mlock(area, sizeof(Area));
  return keys;
}

JobKeys::~JobKeys() {
  sodium_memzero(area_, sizeof(Area));
  munmap(area_, sizeof(Area));
}

// Counts the key whose secret stands in the next free place. False: it is there already.
bool JobKeys::take_next() noexcept {
  const auto next = static_cast<size_t>(area_->count);
  const uint64_t id = id_of(area_->secrets[next]);
  if (find(id)) return false;
  area_->ids[next] = id;
  area_->count++;
  return true;
}

bool JobKeys::parse(size_t size, std::string& why) {
  std::string_view text(area_->text.data(), size);
  for (int number = 1; !text.empty(); number++) {
    const auto end = text.find('\n');
    const auto line = trim(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    if (line.empty() || line[0] == '#') continue;
    const std::string where = "line " + std::to_string(number);
    if (area_->count == kJobKeysMax) {
      why = where + " is one key too many: there may be " + std::to_string(kJobKeysMax) +
            "; remove old ones";
      return false;
    }
    auto& secret = area_->secrets[static_cast<size_t>(area_->count)];
    size_t bytes = 0;
    if (line.size() != kDigits || sodium_hex2bin(secret.data(), secret.size(), line.data(),
                                                 line.size(), nullptr, &bytes, nullptr) != 0) {
      why = where + " is not a key of " + std::to_string(kDigits) +
            " hexadecimal digits; correct it, or put # before it";
      return false;
    }
    if (!take_next()) {
      why = where + " has the same key as a line before; remove one of them";
      return false;
    }
  }
  if (area_->count == 0) why = kNoKey;
  return area_->count > 0;
}

bool JobKeys::load(const std::string& path, std::string& why) {
  if (path.empty()) return why = kNoName, false;
  // A FIFO must not hold the program up, and the checks are for the file that is read.
  const UniqueFd fd(
      ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY));
  if (!fd) return why = open_problem(errno), false;
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) return why = open_problem(errno), false;
  why = key_file_problem(status);
  if (!why.empty()) return false;
  size_t used = 0;
  while (used < area_->text.size()) {
    const ssize_t n = ::read(fd.get(), area_->text.data() + used, area_->text.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return why = open_problem(errno), false;
    if (n == 0) break;
    used += static_cast<size_t>(n);
  }
  if (used > kKeyFileMax) {  // it has grown since the check
    status.st_size = static_cast<off_t>(used);
    return why = key_file_problem(status), false;
  }
  return parse(used, why);
}

std::unique_ptr<JobKeys> JobKeys::read(const std::string& path, std::string& problem) {
  std::string why;
  auto keys = make_empty(why);
  if (keys && keys->load(path, why)) {
    sodium_memzero(keys->area_->text.data(), keys->area_->text.size());
    return keys;
  }
  problem = "the key file " + printable(path) + " cannot be used: " + why;
  return nullptr;
}

std::unique_ptr<JobKeys> JobKeys::make(std::span<const std::array<uint8_t, kJobKeySize>> secrets) {
  if (secrets.empty() || secrets.size() > static_cast<size_t>(kJobKeysMax)) return nullptr;
  std::string why;
  auto keys = make_empty(why);
  if (!keys) return nullptr;
  for (const auto& secret : secrets) {
    keys->area_->secrets[static_cast<size_t>(keys->count())] = secret;
    if (!keys->take_next()) return nullptr;
  }
  return keys;
}

int JobKeys::count() const noexcept {
  return area_->count;
}

std::span<const uint8_t, kJobKeySize> JobKeys::secret(int index) const noexcept {
  return area_->secrets[static_cast<size_t>(index)];
}

uint64_t JobKeys::id(int index) const noexcept {
  return area_->ids[static_cast<size_t>(index)];
}

std::optional<int> JobKeys::find(uint64_t id) const noexcept {
  for (int i = 0; i < area_->count; i++)
    if (area_->ids[static_cast<size_t>(i)] == id) return i;
  return std::nullopt;
}

}  // namespace shift
