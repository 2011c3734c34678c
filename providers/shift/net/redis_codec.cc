// Makes redis's commands and reads its replies with hiredis, of which any release will do. The
// library's own objects for replies are not used: they would be as large as the server says.
#include "net/redis_codec.h"

#include <algorithm>
#include <utility>

#ifdef SHIFT_HIREDIS
#include <hiredis/hiredis.h>
#endif

namespace shift::net {

std::string RedisReply::error_code() const {
  constexpr size_t kCodeMax = 20;
  const size_t end = std::min(text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_"), text.size());
  return end > 0 && end <= kCodeMax ? text.substr(0, end) : "an unknown error";
}

#ifdef SHIFT_HIREDIS

struct RedisReplies::Reader {
  redisReader* raw = nullptr;
  RedisReply reply;  // the one that is being read
  bool failed = false;

  ~Reader() {
    if (raw != nullptr) redisReaderFree(raw);
  }
};

namespace {

using Kind = RedisReply::Kind;

// hiredis calls the functions below with each piece of a reply. Its objects stand for nothing here,
// but no object means that the reply is refused.
char no_object;

RedisReply& reply_of(const redisReadTask* task) {
  return *static_cast<RedisReply*>(task->privdata);
}

// An element of a list must be a text, and a list is no element.
bool fits(const redisReadTask* task, bool is_text) {
  return task->parent == nullptr || (is_text && task->parent->parent == nullptr);
}

void* create_string(const redisReadTask* task, char* text, size_t size) {
  if (size > RedisReply::kTextMax || !fits(task, task->type == REDIS_REPLY_STRING)) return nullptr;
  try {
    RedisReply& reply = reply_of(task);
    if (task->parent != nullptr) return reply.list.emplace_back(text, size), &no_object;
    switch (task->type) {
      case REDIS_REPLY_STRING:
        reply.kind = Kind::kText;
        break;
      case REDIS_REPLY_STATUS:
        reply.kind = Kind::kStatus;
        break;
      case REDIS_REPLY_ERROR:
        reply.kind = Kind::kError;
        break;
      default:
        return nullptr;
    }
    reply.text.assign(text, size);
  } catch (const std::exception&) {
    return nullptr;  // no exception may pass the C code
  }
  return &no_object;
}

// The type of the size differs between releases.
template <typename Size>
void* create_array(const redisReadTask* task, Size size) {
  if (task->type != REDIS_REPLY_ARRAY || !fits(task, false) || size < 0 ||
      static_cast<size_t>(size) > RedisReply::kListMax)
    return nullptr;
  reply_of(task).kind = Kind::kList;
  return &no_object;
}

void* create_integer(const redisReadTask* task, long long value) {
  if (!fits(task, false)) return nullptr;
  reply_of(task).kind = Kind::kInteger;
  reply_of(task).integer = value;
  return &no_object;
}

void* create_nil(const redisReadTask* task) {
  return fits(task, false) ? &no_object : nullptr;  // nil is what a fresh reply is
}

redisReplyObjectFunctions make_functions() {
  redisReplyObjectFunctions functions = {};
  functions.createString = create_string;
  functions.createArray = create_array;
  functions.createInteger = create_integer;
  functions.createNil = create_nil;
  functions.freeObject = [](void*) {};
  return functions;
}

}  // namespace

bool redis_is_built() noexcept {
  return true;
}

bool redis_append(std::string& out, std::initializer_list<std::string_view> words) {
  std::vector<const char*> texts;
  std::vector<size_t> sizes;
  for (const auto word : words) texts.push_back(word.data()), sizes.push_back(word.size());
  char* command = nullptr;
  const auto size =
      redisFormatCommandArgv(&command, static_cast<int>(texts.size()), texts.data(), sizes.data());
  if (size <= 0) return false;
  out.append(command, static_cast<size_t>(size));
  redisFreeCommand(command);
  return true;
}

RedisReplies::RedisReplies() : reader_(std::make_unique<Reader>()) {
  static redisReplyObjectFunctions functions = make_functions();
  reader_->raw = redisReaderCreateWithFunctions(&functions);
  if (reader_->raw != nullptr) reader_->raw->privdata = &reader_->reply;
}

void RedisReplies::feed(std::span<const char> bytes) {
  Reader& r = *reader_;
  r.failed = r.failed || r.raw == nullptr ||
             redisReaderFeed(r.raw, bytes.data(), bytes.size()) != REDIS_OK;
}

RedisReplies::Next RedisReplies::next(RedisReply& reply) {
  Reader& r = *reader_;
  void* object = nullptr;
  r.failed = r.failed || redisReaderGetReply(r.raw, &object) != REDIS_OK;
  if (r.failed) return Next::kNonsense;
  if (object == &no_object) {
    reply = std::exchange(r.reply, {});
    return Next::kReply;
  }
  // Only the text that comes in just now may wait for its rest. An object that no function has made
  // is of a kind that came with a later release.
  r.failed = object != nullptr || r.raw->len - r.raw->pos > RedisReply::kTextMax + 64;
  return r.failed ? Next::kNonsense : Next::kIncomplete;
}

#else  // without hiredis

struct RedisReplies::Reader {};

bool redis_is_built() noexcept {
  return false;
}

bool redis_append(std::string&, std::initializer_list<std::string_view>) {
  return false;
}

RedisReplies::RedisReplies() = default;
void RedisReplies::feed(std::span<const char>) {}

RedisReplies::Next RedisReplies::next(RedisReply&) {
  return Next::kNonsense;
}

#endif

RedisReplies::~RedisReplies() = default;

}  // namespace shift::net
