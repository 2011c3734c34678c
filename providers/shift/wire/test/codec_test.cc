// Checks that every message survives the round trip, and that no malformed frame is accepted or
// crashes.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <string>

#include "wire/messages.h"

namespace shift::wire {
namespace {

QpName name(uint8_t seed) {
  QpName n;
  for (size_t i = 0; i < n.gid.raw.size(); i++) n.gid.raw[i] = static_cast<uint8_t>(seed + i);
  n.qpn = 0x00abcd00u + seed;
  return n;
}

Instance instance(uint8_t seed) {
  Instance i;
  i.raw.fill(seed);
  return i;
}

PublicKey public_key(uint8_t seed) {
  PublicKey key;
  key.raw.fill(seed);
  return key;
}

std::vector<Message> samples() {
  const QpName a = name(1), b = name(77);
  return {
      Hello{instance(9),
            public_key(11),
            instance(8),
            a,
            b,
            3,
            0x123456789abcdef0,
            {instance(1).raw},
            {instance(2).raw}},
      HelloReply{instance(7),
                 public_key(4),
                 {instance(3).raw},
                 a,
                 b,
                 HelloStatus::kRefused,
                 5,
                 {instance(5).raw}},
      Confirm{{instance(6).raw}},
      Bind{a, b, 1, 0xffffff, 5, {name(9).gid, name(10).gid}, 0x80000001, 0xfffffffe},
      Offer{a, b, {1, 2}, 7, {name(33).gid, 0x010203, 4, 5}},
      Accept{a, b, {3, 0}, 0xffffffff, 9, {name(34).gid, 0xffffff, 0xfffffe, 3}},
      Ready{a, b, {1, 1}, 8, Ready::Kind::kBroken},
      Members{b, a, 6, 0x83},
      Drain{a, b, 12, 13, Drain::Kind::kCancel},
      Switch{a, b, 0xffffffff, 2, 3},
      Progress{a, b, 1, 2, 0xfedcba9876543210, {1, 2}, 3, {{{0, 1}, 2, 0xabcdef}, {{1, 1}, 3, 0}}},
      KeyQuery{a, b, 5, 6, 1, {1, 0xffffffff, 3}},
      KeyReply{a, b, 6, 1, {{1, 2, true}, {3, 0, false}}},
      Refuse{a, b, 4, static_cast<RefuseReason>(250)},
      Close{b, a},
      GidQuery{0xfedcba9876543210, name(40).gid, 0x55, {instance(11).raw}},
      GidAnswer{0x0123456789abcdef, name(41).gid, Gid::from_ipv4(0x04030201), {instance(12).raw}},
      KeysGone{b, a, 7, 8, true, {0xffffffff, 2}},
      KeysForgotten{a, b, 0x80000009},
      Avoid{b, a, 0xfffffff8, 0x81},
      Nics{a, b, {{name(9).gid, 200}, {name(10).gid, 1}}},
      Probe{b,
            a,
            Probe::Kind::kAccept,
            7,
            1,
            0xfffffff9,
            Probe::Result::kFailed,
            {name(35).gid, 0x010204, 0xfffffd, 3}},
  };
}

std::vector<uint8_t> encoded(const Message& m) {
  std::vector<uint8_t> out;
  EXPECT_TRUE(encode(m, out));
  return out;
}

void set_length(std::vector<uint8_t>& frame, uint32_t length) {
  for (size_t i = 0; i < 4; i++) frame[8 + i] = static_cast<uint8_t>(length >> (8 * i));
}

TEST(Codec, SamplesCoverEveryType) {
  const auto all = samples();
  ASSERT_EQ(all.size(), std::variant_size_v<Message>);
  for (size_t i = 0; i < all.size(); i++) EXPECT_EQ(all[i].index(), i);
}

TEST(Codec, RoundTripOfEachMessage) {
  for (const Message& m : samples()) {
    Message back;
    ASSERT_TRUE(decode(encoded(m), back)) << message_name(m);
    EXPECT_TRUE(back == m) << message_name(m);
  }
}

TEST(Codec, WireBytesAreFixed) {
  // A Close: the header with a sequence number, then GID and number of both QPs. A change here
  // breaks running peers.
  const QpName from{Gid::from_ipv4(0x04030201), 0x00112233}, to{Gid{}, 1};
  const std::vector<uint8_t> expected = {
      'S',  'H',  'F',  'T', 5, 15, 0, 0, 60, 0, 0,    0,                            //
      0x08, 0x07, 0x06, 5,   4, 3,  2, 1,                                            //
      0,    0,    0,    0,   0, 0,  0, 0, 0,  0, 0xff, 0xff, 1, 2, 3, 4,             //
      0x33, 0x22, 0x11, 0,                                                           //
      0,    0,    0,    0,   0, 0,  0, 0, 0,  0, 0,    0,    0, 0, 0, 0, 1, 0, 0, 0  //
  };
  std::vector<uint8_t> bytes;
  EXPECT_TRUE(encode(Close{from, to}, bytes, 0x0102030405060708));
  EXPECT_EQ(bytes, expected);
  EXPECT_EQ(frame_sequence(bytes), 0x0102030405060708u);
}

TEST(Codec, EveryTruncationIsRefused) {
  for (const Message& m : samples()) {
    const auto whole = encoded(m);
    for (size_t n = 0; n < whole.size(); n++) {
      std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<long>(n));
      Message out;
      EXPECT_FALSE(decode(cut, out)) << message_name(m) << " cut at " << n;
      size_t size = 0;
      EXPECT_EQ(frame_peek(cut, size), FrameState::kIncomplete);
      // Here the header says the length to which the frame was cut.
      if (n < kHeaderSize) continue;
      set_length(cut, static_cast<uint32_t>(n));
      EXPECT_FALSE(decode(cut, out)) << message_name(m) << " honestly cut at " << n;
    }
  }
}

// What follows the frame in memory belongs to others, and may not even be readable.
TEST(Codec, NothingIsReadBeyondTheFrame) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  uint8_t* const end = static_cast<uint8_t*>(memory) + page;
  ASSERT_EQ(mprotect(end, page, PROT_NONE), 0);
  for (const Message& m : samples()) {
    const auto whole = encoded(m);
    for (size_t n = kHeaderSize; n <= whole.size(); n++) {
      std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<long>(n));
      set_length(cut, static_cast<uint32_t>(n));
      std::copy(cut.begin(), cut.end(), end - n);
      Message out;
      EXPECT_EQ(decode({end - n, n}, out), n == whole.size()) << message_name(m) << " cut at " << n;
    }
  }
  munmap(memory, 2 * page);
}

TEST(Codec, TheLongestFrameIsNotMalformed) {
  auto frame = encoded(Close{name(1), name(2)});
  size_t size = 0;
  set_length(frame, kMessageMax);
  EXPECT_EQ(frame_peek(frame, size), FrameState::kIncomplete);
  EXPECT_EQ(size, kMessageMax);
  set_length(frame, kMessageMax + 1);
  EXPECT_EQ(frame_peek(frame, size), FrameState::kMalformed);
  set_length(frame, kHeaderSize - 1);
  EXPECT_EQ(frame_peek(frame, size), FrameState::kMalformed);
}

TEST(Codec, TrailingBytesAreRefused) {
  for (const Message& m : samples()) {
    auto longer = encoded(m);
    longer.push_back(0);
    Message out;
    EXPECT_FALSE(decode(longer, out));
    set_length(longer, static_cast<uint32_t>(longer.size()));
    EXPECT_FALSE(decode(longer, out)) << message_name(m);
  }
}

// The layer must not take the sealed body for a message.
TEST(Codec, SealedFramesAreNotDecoded) {
  auto frame = encoded(Close{name(1), name(2)});
  size_t size = 0;
  frame_mark(frame, frame.size(), true);
  EXPECT_TRUE(frame_is_sealed(frame));
  EXPECT_EQ(frame_peek(frame, size), FrameState::kComplete);
  Message out;
  EXPECT_FALSE(decode(frame, out));
  frame_mark(frame, kHeaderSize + kSealSize - 1, true);
  EXPECT_EQ(frame_peek(frame, size), FrameState::kMalformed) << "there is no room for the seal";
  frame_mark(frame, frame.size(), false);
  EXPECT_TRUE(decode(frame, out));
}

TEST(Codec, ForeignHeadersAreRefused) {
  const auto good = encoded(Close{name(1), name(2)});
  const struct {
    size_t at;
    uint8_t value;
  } cases[] = {{0, 'X'}, {4, 4}, {5, 0}, {5, 23}, {6, 2}, {7, 1}, {11, 1}, {8, 0}};
  for (const auto& c : cases) {
    auto bad = good;
    bad[c.at] = c.value;
    size_t size = 0;
    EXPECT_EQ(frame_peek(bad, size), FrameState::kMalformed) << c.at;
    Message out;
    EXPECT_FALSE(decode(bad, out)) << c.at;
  }
  const std::vector<uint8_t> http = {'G', 'E', 'T'};
  size_t size = 0;
  EXPECT_EQ(frame_peek(http, size), FrameState::kMalformed);
}

TEST(Codec, CountsAreCappedByLimitAndByBytes) {
  Message out;
  auto query = encoded(KeyQuery{name(1), name(2), 5, 6, 1, {1, 2, 3}});
  const size_t count_at = kHeaderSize + 40 + 8 + 1;
  ASSERT_EQ(query[count_at], 3);
  for (uint32_t count : {2u, 4u, 0xffffffffu, 0x40000001u}) {
    for (size_t i = 0; i < 4; i++) query[count_at + i] = static_cast<uint8_t>(count >> (8 * i));
    EXPECT_FALSE(decode(query, out)) << count;
  }
  KeyQuery most{name(1), name(2), 5, 6, 1, std::vector<uint32_t>(kKeysMax, 7)};
  EXPECT_TRUE(decode(encoded(most), out));
  most.rkeys.push_back(7);
  std::vector<uint8_t> bytes = {42};
  EXPECT_FALSE(encode(most, bytes));
  EXPECT_EQ(bytes.size(), 1u);  // nothing was appended
  // This sender ignores the limit and sends 65537 keys; everything else in the frame is right.
  auto forged = encoded(KeyQuery{name(1), name(2), 5, 6, 1, std::vector<uint32_t>(kKeysMax, 7)});
  forged.resize(forged.size() + 4);
  set_length(forged, static_cast<uint32_t>(forged.size()));
  forged[count_at] = 1;
  EXPECT_FALSE(decode(forged, out));
  KeyReply reply{name(1), name(2), 6, 1, std::vector<KeyPair>(kKeysMax, KeyPair{1, 2, true})};
  EXPECT_TRUE(decode(encoded(reply), out));
}

TEST(Codec, FlagBytesAreZeroOrOne) {
  auto reply = encoded(KeyReply{name(1), name(2), 6, 1, {{1, 2, true}}});
  reply.back() = 2;
  Message out;
  EXPECT_FALSE(decode(reply, out));
  auto gone = encoded(KeysGone{name(1), name(2), 6, 1, true, {}});
  gone[gone.size() - 5] = 2;  // the empty list's count follows
  EXPECT_FALSE(decode(gone, out));
}

TEST(Codec, StreamIsSplitIntoMessages) {
  std::vector<uint8_t> stream;
  for (const Message& m : samples()) ASSERT_TRUE(encode(m, stream));
  std::span<const uint8_t> rest = stream;
  for (const Message& m : samples()) {
    size_t size = 0;
    ASSERT_EQ(frame_peek(rest, size), FrameState::kComplete);
    Message out;
    ASSERT_TRUE(decode(rest.first(size), out));
    EXPECT_TRUE(out == m);
    rest = rest.subspan(size);
  }
  EXPECT_TRUE(rest.empty());
}

TEST(Codec, FlippedBitsNeverCrashAndWhatPassesIsConsistent) {
  std::mt19937 random(20240607);
  const auto all = samples();
  std::vector<std::vector<uint8_t>> frames;
  for (const Message& m : all) frames.push_back(encoded(m));
  size_t accepted = 0;
  for (int i = 0; i < 100000; i++) {
    auto frame = frames[random() % frames.size()];
    for (unsigned flips = 1 + random() % 4; flips > 0; flips--)
      frame[random() % frame.size()] ^= static_cast<uint8_t>(1u << (random() % 8));
    Message out;
    if (!decode(frame, out)) continue;
    accepted++;
    // The encoding is canonical: an accepted frame is exactly the encoding of its message.
    std::vector<uint8_t> again;
    ASSERT_TRUE(encode(out, again, frame_sequence(frame)));
    ASSERT_EQ(again, frame);
  }
  EXPECT_GT(accepted, 1000u);
  EXPECT_LT(accepted, 100000u);
}

}  // namespace
}  // namespace shift::wire
