// The bodies of all messages as the header has them, each beside the members of the message that it
// carries. A message that is not here does not compile in layout_test.cc.
#pragma once

#include "test/layout.h"

namespace shift::header {

inline constexpr size_t kItems = 3;  // in each list

// Both names come first in the messages of a channel.
#define SHIFT_PAIR(type)              \
  l.begin(sizeof(type));              \
  SHIFT_FIELD(l, type, from, m.from); \
  SHIFT_FIELD(l, type, to, m.to)

inline int body(Layout& l, wire::Hello& m) {
  using T = shift_wire_hello;
  l.begin(sizeof(T));
  SHIFT_FIELD(l, T, instance, m.instance);
  SHIFT_FIELD(l, T, identity, m.identity);
  SHIFT_FIELD(l, T, target, m.target);
  SHIFT_FIELD(l, T, want, m.want);
  SHIFT_FIELD(l, T, from, m.from);
  SHIFT_FIELD(l, T, pair, m.pair);
  SHIFT_FIELD(l, T, key, m.key);
  SHIFT_FIELD(l, T, nonce, m.nonce);
  SHIFT_FIELD(l, T, tag, m.tag);
  return SHIFT_WIRE_HELLO;
}

inline int body(Layout& l, wire::HelloReply& m) {
  using T = shift_wire_hello_reply;
  l.begin(sizeof(T));
  SHIFT_FIELD(l, T, instance, m.instance);
  SHIFT_FIELD(l, T, identity, m.identity);
  SHIFT_FIELD(l, T, nonce, m.nonce);
  SHIFT_FIELD(l, T, want, m.want);
  SHIFT_FIELD(l, T, from, m.from);
  SHIFT_FIELD(l, T, status, m.status);
  SHIFT_FIELD(l, T, reason, m.reason);
  SHIFT_FIELD(l, T, tag, m.tag);
  return SHIFT_WIRE_HELLO_REPLY;
}

inline int body(Layout& l, wire::Confirm& m) {
  l.begin(sizeof(shift_wire_confirm));
  SHIFT_FIELD(l, shift_wire_confirm, tag, m.tag);
  return SHIFT_WIRE_CONFIRM;
}

inline int body(Layout& l, wire::Bind& m) {
  using T = shift_wire_bind;
  SHIFT_PAIR(T);
  SHIFT_FIELD(l, T, sq_psn, m.sq_psn);
  SHIFT_FIELD(l, T, rq_psn, m.rq_psn);
  SHIFT_FIELD(l, T, members_up, m.members_up);
  SHIFT_FIXED(l, T, count, kItems);
  m.members.resize(kItems);
  for (wire::Gid& gid : m.members) {
    l.begin(sizeof(shift_wire_bind_item));
    SHIFT_FIELD(l, shift_wire_bind_item, gid, gid);
  }
  l.begin(sizeof(shift_wire_bind_end));
  SHIFT_FIELD(l, shift_wire_bind_end, flags, m.flags);
  SHIFT_FIELD(l, shift_wire_bind_end, epoch, m.epoch);
  return SHIFT_WIRE_BIND;
}

inline int body(Layout& l, wire::Offer& m) {
  using T = shift_wire_offer;
  SHIFT_PAIR(T);
  SHIFT_FIELD(l, T, path, m.path);
  SHIFT_FIELD(l, T, generation, m.generation);
  SHIFT_FIELD(l, T, address, m.address);
  return SHIFT_WIRE_OFFER;
}

inline int body(Layout& l, wire::Accept& m) {
  using T = shift_wire_accept;
  SHIFT_PAIR(T);
  SHIFT_FIELD(l, T, path, m.path);
  SHIFT_FIELD(l, T, generation, m.generation);
  SHIFT_FIELD(l, T, status, m.status);
  SHIFT_FIELD(l, T, address, m.address);
  return SHIFT_WIRE_ACCEPT;
}

inline int body(Layout& l, wire::Ready& m) {
  using T = shift_wire_ready;
  SHIFT_PAIR(T);
  SHIFT_FIELD(l, T, path, m.path);
  SHIFT_FIELD(l, T, generation, m.generation);
  SHIFT_FIELD(l, T, kind, m.kind);
  return SHIFT_WIRE_READY;
}

inline int body(Layout& l, wire::Members& m) {
  using T = shift_wire_members;
  SHIFT_PAIR(T);
  SHIFT_FIELD(l, T, seq, m.seq);
  SHIFT_FIELD(l, T, up, m.up);
  return SHIFT_WIRE_MEMBERS;
}

inline int body(Layout& l, wire::Drain& m) {
  using T = shift_wire_drain;
  SHIFT_PAIR(T);
  SHIFT_FIELD(l, T, epoch, m.epoch);
  SHIFT_FIELD(l, T, attempt, m.attempt);
  SHIFT_FIELD(l, T, kind, m.kind);
  return SHIFT_WIRE_DRAIN;
}

inline int body(Layout& l, wire::Switch& m) {
  using T = shift_wire_switch;
  SHIFT_PAIR(T);
  SHIFT_FIELD(l, T, epoch, m.epoch);
  SHIFT_FIELD(l, T, seq, m.seq);
  SHIFT_FIELD(l, T, reason, m.reason);
  return SHIFT_WIRE_SWITCH;
}

inline int body(Layout& l, wire::Progress& m) {
  using T = shift_wire_progress;
  using Item = shift_wire_progress_item;
  SHIFT_PAIR(T);
  SHIFT_FIELD(l, T, epoch, m.epoch);
  SHIFT_FIELD(l, T, seq, m.seq);
  SHIFT_FIELD(l, T, notifications_received, m.notifications_received);
  SHIFT_FIELD(l, T, target, m.target);
  SHIFT_FIELD(l, T, generation, m.generation);
  SHIFT_FIXED(l, T, count, kItems);
  m.responders.resize(kItems);
  for (wire::ResponderPsn& responder : m.responders) {
    l.begin(sizeof(Item));
    SHIFT_FIELD(l, Item, path, responder.path);
    SHIFT_FIELD(l, Item, generation, responder.generation);
    SHIFT_FIELD(l, Item, psn, responder.psn);
  }
  return SHIFT_WIRE_PROGRESS;
}

inline int body(Layout& l, wire::KeyQuery& m) {
  using T = shift_wire_key_query;
  SHIFT_PAIR(T);
  SHIFT_FIELD(l, T, epoch, m.epoch);
  SHIFT_FIELD(l, T, query_id, m.query_id);
  SHIFT_FIELD(l, T, member, m.member);
  SHIFT_FIXED(l, T, count, kItems);
  m.rkeys.resize(kItems);
  for (uint32_t& rkey : m.rkeys) {
    l.begin(sizeof(shift_wire_key_query_item));
    SHIFT_FIELD(l, shift_wire_key_query_item, rkey, rkey);
  }
  return SHIFT_WIRE_KEY_QUERY;
}

inline int body(Layout& l, wire::KeyReply& m) {
  using T = shift_wire_key_reply;
  using Item = shift_wire_key_reply_item;
  SHIFT_PAIR(T);
  SHIFT_FIELD(l, T, query_id, m.query_id);
  SHIFT_FIELD(l, T, member, m.member);
  SHIFT_FIXED(l, T, count, kItems);
  m.keys.resize(kItems);
  for (wire::KeyPair& key : m.keys) {
    l.begin(sizeof(Item));
    SHIFT_FIELD(l, Item, rkey, key.rkey);
    SHIFT_FIELD(l, Item, new_rkey, key.new_rkey);
    SHIFT_FIELD(l, Item, found, key.found);
  }
  return SHIFT_WIRE_KEY_REPLY;
}

inline int body(Layout& l, wire::Refuse& m) {
  using T = shift_wire_refuse;
  SHIFT_PAIR(T);
  SHIFT_FIELD(l, T, epoch, m.epoch);
  SHIFT_FIELD(l, T, reason, m.reason);
  return SHIFT_WIRE_REFUSE;
}

inline int body(Layout& l, wire::Close& m) {
  using T = shift_wire_close;
  SHIFT_PAIR(T);
  return SHIFT_WIRE_CLOSE;
}

inline int body(Layout& l, wire::GidQuery& m) {
  using T = shift_wire_gid_query;
  l.begin(sizeof(T));
  SHIFT_FIELD(l, T, nonce, m.nonce);
  SHIFT_FIELD(l, T, gid, m.gid);
  SHIFT_FIELD(l, T, key, m.key);
  SHIFT_FIELD(l, T, tag, m.tag);
  return SHIFT_WIRE_GID_QUERY;
}

inline int body(Layout& l, wire::GidAnswer& m) {
  using T = shift_wire_gid_answer;
  l.begin(sizeof(T));
  SHIFT_FIELD(l, T, nonce, m.nonce);
  SHIFT_FIELD(l, T, gid, m.gid);
  SHIFT_FIELD(l, T, address, m.address);
  SHIFT_FIELD(l, T, tag, m.tag);
  return SHIFT_WIRE_GID_ANSWER;
}

inline int body(Layout& l, wire::KeysGone& m) {
  using T = shift_wire_keys_gone;
  SHIFT_PAIR(T);
  SHIFT_FIELD(l, T, epoch, m.epoch);
  SHIFT_FIELD(l, T, number, m.number);
  SHIFT_FIELD(l, T, all, m.all);
  SHIFT_FIXED(l, T, count, kItems);
  m.rkeys.resize(kItems);
  for (uint32_t& rkey : m.rkeys) {
    l.begin(sizeof(shift_wire_keys_gone_item));
    SHIFT_FIELD(l, shift_wire_keys_gone_item, rkey, rkey);
  }
  return SHIFT_WIRE_KEYS_GONE;
}

inline int body(Layout& l, wire::KeysForgotten& m) {
  using T = shift_wire_keys_forgotten;
  SHIFT_PAIR(T);
  SHIFT_FIELD(l, T, number, m.number);
  return SHIFT_WIRE_KEYS_FORGOTTEN;
}

inline int body(Layout& l, wire::Avoid& m) {
  using T = shift_wire_avoid;
  SHIFT_PAIR(T);
  SHIFT_FIELD(l, T, seq, m.seq);
  SHIFT_FIELD(l, T, members, m.members);
  return SHIFT_WIRE_AVOID;
}

inline int body(Layout& l, wire::Nics& m) {
  using T = shift_wire_nics;
  using Item = shift_wire_nics_item;
  SHIFT_PAIR(T);
  SHIFT_FIXED(l, T, count, kItems);
  m.nics.resize(kItems);
  for (wire::NicShare& nic : m.nics) {
    l.begin(sizeof(Item));
    SHIFT_FIELD(l, Item, gid, nic.gid);
    SHIFT_FIELD(l, Item, capacity, nic.capacity);
  }
  return SHIFT_WIRE_NICS;
}

inline int body(Layout& l, wire::Probe& m) {
  using T = shift_wire_probe;
  SHIFT_PAIR(T);
  SHIFT_FIELD(l, T, kind, m.kind);
  SHIFT_FIELD(l, T, own, m.own);
  SHIFT_FIELD(l, T, peer, m.peer);
  SHIFT_FIELD(l, T, number, m.number);
  SHIFT_FIELD(l, T, result, m.result);
  SHIFT_FIELD(l, T, address, m.address);
  return SHIFT_WIRE_PROBE;
}

#undef SHIFT_PAIR

}  // namespace shift::header
