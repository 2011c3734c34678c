#include "group/told_keys.h"

#include <new>
#include <utility>

namespace shift::group {

void ToldKeys::tell(uint64_t serial, uint32_t rkey) {
  Peer& peer = peers_[serial];
  if (peer.told_all || peer.told.count(rkey) != 0) return;
  if (peer.told.size() == kToldMax) {
    untell(serial, peer);
    peer.told_all = true;
    told_all_++;
    return;
  }
  peer.told.insert(rkey);
  by_key_[rkey].push_back(serial);
}

std::vector<uint64_t> ToldKeys::listeners() const {
  std::vector<uint64_t> serials;
  for (const auto& [serial, peer] : peers_) {
    if (!peer.is_asked && !peer.unsaid.empty()) serials.push_back(serial);
  }
  return serials;
}

std::optional<ToldKeys::Gone> ToldKeys::say(uint64_t serial) {
  const auto it = peers_.find(serial);
  if (it == peers_.end() || it->second.is_asked || it->second.unsaid.empty()) return std::nullopt;
  Peer& peer = it->second;
  peer.said = std::exchange(peer.unsaid, {});
  peer.is_asked = true;
  // What it is told from here on, it is told after it has forgotten all.
  if (peer.said.all) untell(serial, peer);
  return unanswered(serial);
}

std::optional<ToldKeys::Gone> ToldKeys::unanswered(uint64_t serial) const {
  const auto it = peers_.find(serial);
  if (it == peers_.end() || !it->second.is_asked) return std::nullopt;
  const Batch& said = it->second.said;
  return said.all ? Gone{true, {}} : Gone{false, said.rkeys};
}

bool ToldKeys::forgotten(uint64_t serial) {
  const auto it = peers_.find(serial);
  if (it == peers_.end() || !it->second.is_asked) return false;
  Peer& peer = it->second;
  release(peer.said);
  peer.is_asked = false;
  if (peer.told.empty() && !peer.told_all && peer.unsaid.empty()) peers_.erase(it);
  note();
  return true;
}

void ToldKeys::forget(uint64_t serial) {
  const auto it = peers_.find(serial);
  if (it == peers_.end()) return;
  untell(serial, it->second);
  release(it->second.unsaid);
  release(it->second.said);
  peers_.erase(it);
  note();
}

bool ToldKeys::withdraw(uint32_t rkey) noexcept {
  const auto it = by_key_.find(rkey);
  if (it == by_key_.end() && told_all_ == 0) return false;
  if (it != by_key_.end()) {
    for (uint64_t serial : it->second) {
      Peer& peer = peers_.find(serial)->second;
      peer.told.erase(rkey);
      withdraw_from(peer, rkey);
    }
    by_key_.erase(it);
  }
  if (told_all_ != 0) {
    for (auto& [serial, peer] : peers_) {
      if (!peer.told_all) continue;
      peer.unsaid.all = true;
      withdraw_from(peer, rkey);
    }
  }
  note();
  return true;
}

void ToldKeys::withdraw_from(Peer& peer, uint32_t rkey) noexcept {
  Batch& gone = peer.unsaid;
  if (gone.every) return;
  if (gone.rkeys.size() < kGoneMax) {
    try {
      gone.rkeys.push_back(rkey);
      try {
        ++withheld_[rkey];
        return;
      } catch (const std::bad_alloc&) {
        gone.rkeys.pop_back();
      }
    } catch (const std::bad_alloc&) {
    }
  }
  gone.all = gone.every = true;
  every_++;
}

void ToldKeys::untell(uint64_t serial, Peer& peer) {
  for (uint32_t rkey : peer.told) {
    const auto it = by_key_.find(rkey);
    if (it == by_key_.end()) continue;  // memory was short when it was told
    std::erase(it->second, serial);
    if (it->second.empty()) by_key_.erase(it);
  }
  peer.told.clear();
  if (std::exchange(peer.told_all, false)) told_all_--;
}

void ToldKeys::release(Batch& batch) {
  for (uint32_t rkey : batch.rkeys) {
    const auto it = withheld_.find(rkey);
    if (--it->second == 0) withheld_.erase(it);
  }
  if (batch.every) every_--;
  batch = {};
}

void ToldKeys::note() {
  withholds_any_.store(every_ != 0 || !withheld_.empty(), std::memory_order_relaxed);
  released_.notify_all();
}

}  // namespace shift::group
