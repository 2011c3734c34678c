// Maps the number of a real QP to the counters of its group; the hot path looks it up for each
// completion. Readers take no lock; writers hold the context's mutex. Entries never move inside a
// table. A table that is too full is replaced, and kept until the context is closed, since a reader
// may still be in it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "util/tally.h"

namespace shift::group {

// Completions seen, by kind: [0] signaled sends, [1] receives. The thread that polls the queue (the
// biased one or the holder of the CQ's mutex) writes them. A reader that has stopped that thread
// reads exact values; any other reader gets a lower bound.
struct Counters {
  Tally done[2];
};

class QpTable {
 public:
  QpTable() { table_.store(make(64), std::memory_order_release); }

  // nullptr: the QP is not protected.
  [[gnu::always_inline]] Counters* find(uint32_t qpn) const {
    const Table* table = table_.load(std::memory_order_acquire);
    for (uint32_t i = hash(qpn);; i++) {
      const Entry& entry = table->entries[i & table->mask];
      const uint32_t key = entry.key.load(std::memory_order_acquire);
      if (key == qpn) return entry.counters.load(std::memory_order_acquire);
      if (key == kFree) return nullptr;
    }
  }

  void insert(uint32_t qpn, Counters* counters) {
    Table* table = table_.load(std::memory_order_relaxed);
    if ((used_ + 1) * 2 > table->mask) table = grow(table);
    put(table, qpn, counters);
  }
  // The key stays as a tombstone with a null pointer; grow() drops it. If the number belongs to
  // another QP by now, nothing changes: the NIC may give out the number of a destroyed QP again
  // before that QP is taken out of this table.
  void erase(uint32_t qpn, const Counters* counters) {
    Table* table = table_.load(std::memory_order_relaxed);
    for (uint32_t i = hash(qpn);; i++) {
      Entry& entry = table->entries[i & table->mask];
      const uint32_t key = entry.key.load(std::memory_order_relaxed);
      if (key == kFree) return;
      if (key != qpn) continue;
      if (entry.counters.load(std::memory_order_relaxed) == counters) {
        entry.counters.store(nullptr, std::memory_order_release);
      }
      return;
    }
  }

 private:
  static constexpr uint32_t kFree = UINT32_MAX;  // QPNs have 24 bits
  struct Entry {
    std::atomic<uint32_t> key{kFree};
    std::atomic<Counters*> counters{nullptr};
  };
  struct Table {
    uint32_t mask;
    std::unique_ptr<Entry[]> entries;
  };

  static uint32_t hash(uint32_t qpn) { return qpn ^ qpn >> 12; }

  Table* make(uint32_t slots) {
    tables_.push_back(std::make_unique<Table>(Table{slots - 1, std::make_unique<Entry[]>(slots)}));
    return tables_.back().get();
  }
  void put(Table* table, uint32_t qpn, Counters* counters) {
    for (uint32_t i = hash(qpn);; i++) {
      Entry& entry = table->entries[i & table->mask];
      const uint32_t key = entry.key.load(std::memory_order_relaxed);
      if (key != kFree && key != qpn) continue;
      entry.counters.store(counters, std::memory_order_release);
      if (key == kFree) {
        entry.key.store(qpn, std::memory_order_release);
        used_++;
      }
      return;
    }
  }
  Table* grow(Table* old) {
    uint32_t live = 0;
    for (uint32_t i = 0; i <= old->mask; i++) live += old->entries[i].counters.load() != nullptr;
    uint32_t slots = 64;
    while (slots < live * 4) slots *= 2;
    Table* table = make(slots);
    used_ = 0;
    for (uint32_t i = 0; i <= old->mask; i++) {
      Counters* counters = old->entries[i].counters.load();
      if (counters != nullptr) put(table, old->entries[i].key.load(), counters);
    }
    table_.store(table, std::memory_order_release);
    return table;
  }

  std::atomic<Table*> table_{nullptr};
  uint32_t used_ = 0;
  std::vector<std::unique_ptr<Table>> tables_;
};

}  // namespace shift::group
