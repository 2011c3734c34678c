// The protocol of redis, as bytes. hiredis does the work; a build without it has no redis.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shift::net {

// Whether this build has hiredis. Without it no command can be made and no reply be read.
bool redis_is_built() noexcept;

// A reply of a kind that the layer's commands can have. A longer or a deeper one is an error.
struct RedisReply {
  enum class Kind : uint8_t { kNil, kText, kStatus, kError, kInteger, kList };
  static constexpr size_t kTextMax = 4096;  // bytes of each text
  static constexpr size_t kListMax = 16;    // texts of a list

  Kind kind = Kind::kNil;
  std::string text;  // of a text, a status and an error
  int64_t integer = 0;
  std::vector<std::string> list;

  bool is_error() const { return kind == Kind::kError; }
  // The first word of an error, such as "WRONGPASS". The rest may repeat what was sent, which may
  // be a password.
  std::string error_code() const;
};

// Appends a command. Returns false, with nothing appended, when memory is short.
[[nodiscard]] bool redis_append(std::string& out, std::initializer_list<std::string_view> words);

// Cuts what a server sends into replies. Its memory is bounded, whatever the server sends.
class RedisReplies {
 public:
  enum class Next : uint8_t { kReply, kIncomplete, kNonsense };

  RedisReplies();
  ~RedisReplies();
  RedisReplies(const RedisReplies&) = delete;
  RedisReplies& operator=(const RedisReplies&) = delete;

  // Takes further bytes, 16 KiB at most. After each call next() has to be called until it has no
  // further reply.
  void feed(std::span<const char> bytes);
  // After nonsense there is never anything else.
  Next next(RedisReply& reply);

 private:
  struct Reader;
  std::unique_ptr<Reader> reader_;
};

}  // namespace shift::net
