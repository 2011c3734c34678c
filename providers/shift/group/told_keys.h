// What peers were told of a context's keys, and which numbers the application must not be given.
//
// A requester that was told which key stands for the default's rkey K on another NIC goes on to use
// that key until it forgets it. When the region of K is deregistered, the default NIC may give the
// number K to another region at once. So each peer that was told K hears that K is gone, and until
// it has said that it forgot K, the number is *withheld*: the application gets no region with it
// (ops/fresh_key.h).
//
// All functions but withholds_any() are called under Context::mutex. Peers are known by the serial
// number of the group's life. What is kept for one of them is bounded: nothing that it says makes
// it more.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "util/uncancellable.h"

namespace shift::group {

class ToldKeys {
 public:
  // A peer that is told more keys counts as told all of them.
  static constexpr size_t kToldMax = 4096;
  // When a peer was told more keys that are gone now, and has said nothing yet, it must forget all
  // of its keys, and every number is withheld until it has.
  static constexpr size_t kGoneMax = 4096;

  // What a peer must forget.
  struct Gone {
    bool all = false;  // every key
    std::vector<uint32_t> rkeys;
  };

  // ---- the control thread calls these

  void tell(uint64_t serial, uint32_t rkey);
  // The peers that have something to hear and have answered all that was said to them.
  std::vector<uint64_t> listeners() const;
  // What has to be said to the peer; nullopt: nothing now. Nothing more is given out before
  // forgotten().
  std::optional<Gone> say(uint64_t serial);
  // What was said and has not been answered.
  std::optional<Gone> unanswered(uint64_t serial) const;
  // The peer has forgotten what was said last. False: nothing was, or it has answered already.
  bool forgotten(uint64_t serial);

  // ---- any thread may call these

  // The peer can reach no memory with any key that it was told so far.
  void forget(uint64_t serial);
  // The region with this key goes: from now on the number is withheld. Returns whether somebody
  // was told the key, and so has to hear that it is gone.
  bool withdraw(uint32_t rkey) noexcept;
  bool withholds(uint32_t rkey) const { return every_ != 0 || withheld_.count(rkey) != 0; }
  bool withholds_every() const { return every_ != 0; }
  // Whether any number is withheld. The thread that withholds a number does so before the NIC can
  // give it out again, so a thread that has got a number from the NIC sees it without an order.
  bool withholds_any() const noexcept { return withholds_any_.load(std::memory_order_relaxed); }
  // Waits until the condition holds. It is looked at whenever numbers are not withheld any more.
  template <typename Condition>
  bool await(std::unique_lock<std::mutex>& context_lock,
             std::chrono::steady_clock::time_point deadline, const Condition& condition) {
    const Uncancellable shield;  // the wait is in a verb, which has no place for a cancellation
    return released_.wait_until(context_lock, deadline, condition);
  }

 private:
  struct Batch {
    std::vector<uint32_t> rkeys;  // each is counted in withheld_
    bool all = false;             // the peer must forget all keys
    bool every = false;           // counted in every_
    bool empty() const { return rkeys.empty() && !all; }
  };
  struct Peer {
    std::unordered_set<uint32_t> told;
    bool told_all = false;
    Batch unsaid, said;
    bool is_asked = false;  // `said` is not answered
  };

  void withdraw_from(Peer& peer, uint32_t rkey) noexcept;
  void untell(uint64_t serial, Peer& peer);
  void release(Batch& batch);
  void note();

  std::unordered_map<uint64_t, Peer> peers_;
  std::unordered_map<uint32_t, std::vector<uint64_t>> by_key_;  // who was told a key
  size_t told_all_ = 0;                                         // so many peers were told all keys
  std::unordered_map<uint32_t, uint32_t> withheld_;             // for so many peers
  size_t every_ = 0;                                            // for so many peers, every number
  std::atomic<bool> withholds_any_{false};
  std::condition_variable released_;
};

}  // namespace shift::group
