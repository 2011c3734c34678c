#include "sim/judge.h"

#include <algorithm>

#include "group/journal.h"
#include "ops/entry.h"

namespace shift::sim {
namespace {

using group::is_atomic;
using group::is_notification;

constexpr uint64_t kReceiveTag = 1u << 20;
constexpr uint64_t kOwnRequests = 1u << 21;  // above: the layer's, named by addresses
constexpr uint64_t kSource = 0x10000, kTarget = 0x20000, kBuffer = 0x30000;
constexpr uint32_t kLength = 8;

bool is_write(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

ibv_wc_opcode completion_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    default:
      return IBV_WC_SEND;
  }
}

std::string name_of(int host, uint64_t request) {
  return std::string(host == 0 ? "a" : "b") + "'s request " + std::to_string(request);
}

}  // namespace

void Judge::fail(std::string what) {
  if (verdict_.empty()) verdict_ = std::move(what);
}

void Judge::fault_seen(const char* rule, const Packet* packet, int host, int member) {
  fail(std::string(rule) + " (host " + (host == 0 ? "a" : "b") + ", member " +
       std::to_string(member) + (packet ? ", request " + std::to_string(packet->wr.wr_id) : "") +
       ")");
}

// ---- what the applications do

void Judge::send(int host, const AppPlan::Send& plan) {
  App& app = at(host);
  app.sends.push_back({plan.opcode, plan.signaled, plan.slot});
  app.sends.back().too_late = app.host->group->send.route == group::Route::kError;
  const uint64_t number = app.sends.size();
  if (is_notification(plan.opcode)) app.notifications.push_back(static_cast<uint32_t>(number));
  ibv_sge sge{kSource + number, kLength, group::kLkey};
  ibv_send_wr wr{}, *bad;
  wr.wr_id = number;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = plan.opcode;
  wr.send_flags = plan.signaled ? IBV_SEND_SIGNALED : 0;
  wr.imm_data = static_cast<uint32_t>(number);
  if (is_atomic(plan.opcode)) {
    wr.imm_data = 0;
    wr.wr.atomic = {kTarget + plan.slot, 1, 2, group::kRkey};
  } else if (plan.opcode != IBV_WR_SEND && plan.opcode != IBV_WR_SEND_WITH_IMM) {
    wr.wr.rdma = {kTarget + plan.slot, group::kRkey};
  }
  if (ops::post_send(app.host->group->handle(), &wr, &bad) != 0) {
    fail("C9: " + name_of(host, number) + " is refused");
  }
}

void Judge::receive(int host) {
  App& app = at(host);
  const uint64_t number = ++app.receives;
  app.receive_memory.resize(number);
  ibv_sge sge{kBuffer + number, kLength, group::kLkey};
  ibv_recv_wr wr{kReceiveTag + number, nullptr, &sge, 1}, *bad;
  if (ops::post_recv(app.host->group->handle(), &wr, &bad) != 0) {
    fail("C9: receive " + std::to_string(number) + " is refused");
  }
}

bool Judge::has_completions(int host) const {
  const App& app = at(host);
  if (app.gone) return false;
  const group::CompletionQueue& cq = *app.host->cq;
  if (!cq.side.empty() || !group::FakeCq::of(cq.real[group::kDefault]).waiting.empty()) return true;
  if (!cq.poll_all || cq.slow_groups == 0) return false;  // nobody looks there
  return std::ranges::any_of(cq.real, [](ibv_cq* real) {
    return real != nullptr && !group::FakeCq::of(real).waiting.empty();
  });
}

void Judge::poll(int host) {
  ibv_wc wc[8];
  for (int got; !at(host).gone && (got = ops::poll_cq(&at(host).host->cq->cq, 8, wc)) > 0;) {
    for (int i = 0; i < got; i++) take(host, wc[i]);
  }
}

// ---- what the NICs do

void Judge::executed(const Packet& packet, const group::PostedRecv* receive) {
  if (packet.wr.wr_id > kOwnRequests || packet.wr.num_sge == 0) return;  // writes nothing
  App& from = at(packet.host);
  App& to = at(1 - packet.host);
  const uint64_t number = packet.wr.wr_id;
  const std::string who = name_of(packet.host, number);
  if (number == 0 || number > from.sends.size()) return fail("C2: " + who + " was never posted");
  Sent& sent = from.sends[number - 1];
  if (sent.opcode != packet.wr.opcode || packet.sge.addr != kSource + number) {
    return fail("C2: " + who + " is not what was posted");
  }
  if (number > from.ran + 1) return fail("C2: " + who + " is executed before the one before it");
  if (to.seen > number && sent.opcode != IBV_WR_RDMA_READ) {
    return fail("C3: " + who + " is executed after the receiver saw request " +
                std::to_string(to.seen));
  }
  if (to.first_error != 0 || to.receives_failed) {
    if (!to.gone) return fail("C6: " + who + " is executed after the receiver was given an error");
  }
  if (receive != nullptr) {
    if (from.notified >= from.notifications.size() || from.notifications[from.notified] != number) {
      return fail("C2: " + who + " notifies out of its turn");
    }
    from.notified++;
    if (receive->wr_id != kReceiveTag + from.notified) {
      return fail("C2: " + who + " takes the receive " +
                  std::to_string(receive->wr_id - kReceiveTag));
    }
    to.receive_memory[from.notified - 1] = static_cast<uint32_t>(number);
  }
  if (is_atomic(sent.opcode) && sent.executed) return fail("C5: " + who + " is executed twice");
  if (is_write(sent.opcode)) to.memory[sent.slot] = static_cast<uint32_t>(number);
  sent.executed = true;
  from.ran = std::max(from.ran, static_cast<uint32_t>(number));
}

uint64_t Judge::memory_read(int host, uint64_t address) {
  return at(host).memory[(address - kTarget) % 4];
}

void Judge::read_done(const Packet& packet, uint64_t) {
  if (packet.wr.wr_id <= at(packet.host).sends.size() && packet.wr.wr_id != 0) {
    at(packet.host).sends[packet.wr.wr_id - 1].data_came = true;
  }
}

// ---- what the applications are told

void Judge::take(int host, const ibv_wc& wc) {
  App& app = at(host);
  if (wc.qp_num != app.host->group->qpn()) fail("C9: a completion of another QP");
  if (wc.status != IBV_WC_SUCCESS) return take_error(host, wc);
  if (wc.wr_id > kReceiveTag) return take_receive(host, wc);
  take_send(host, wc);
}

void Judge::take_error(int host, const ibv_wc& wc) {
  App& app = at(host);
  if (wc.wr_id > kReceiveTag) {
    const uint64_t number = wc.wr_id - kReceiveTag;
    if (number != app.received + 1) {
      fail("C1: receive " + std::to_string(number) + " fails out of its turn");
    }
    app.received = number;
    app.receives_failed = true;
    return;
  }
  if (wc.wr_id == 0 || wc.wr_id > app.sends.size()) return fail("C1: an error of no request");
  // A request may be passed over if nothing was to be told of it and it was executed.
  const bool is_first = app.first_error == 0;
  const uint64_t before = is_first ? app.next_done : app.last_error;
  if (wc.wr_id <= before) fail("C1: " + name_of(host, wc.wr_id) + " ends twice");
  for (uint64_t i = before; i + 1 < wc.wr_id; i++) {
    const Sent& passed = app.sends[i];
    if (passed.signaled || (!is_first && !passed.executed)) {
      fail("C1: " + name_of(host, i + 1) + " is passed over");
    }
  }
  if (is_first) {
    if (wc.status == IBV_WC_WR_FLUSH_ERR && !app.sends[wc.wr_id - 1].too_late &&
        !at(1 - host).gone) {
      fail("C6: the original error is withheld");
    }
    app.first_error = wc.wr_id;
  }
  app.last_error = wc.wr_id;
}

void Judge::take_send(int host, const ibv_wc& wc) {
  App& app = at(host);
  const std::string who = name_of(host, wc.wr_id);
  if (app.first_error != 0) return fail("C1: " + who + " succeeds after an error");
  while (app.next_done < app.sends.size() && !app.sends[app.next_done].signaled) app.next_done++;
  if (app.next_done >= app.sends.size() || wc.wr_id != app.next_done + 1) {
    return fail("C1: " + who + " completes out of its turn");
  }
  const Sent& sent = app.sends[app.next_done++];
  if (wc.opcode != completion_of(sent.opcode)) fail("C1: " + who + " completes as another kind");
  if (!sent.executed) fail("C4: " + who + " succeeds and was not executed");
  const bool has_data = sent.opcode == IBV_WR_RDMA_READ || is_atomic(sent.opcode);
  if (has_data && !sent.data_came) fail("C4: " + who + " succeeds without its data");
}

void Judge::take_receive(int host, const ibv_wc& wc) {
  App& app = at(host);
  const App& peer = at(1 - host);
  const uint64_t number = wc.wr_id - kReceiveTag;
  if (app.receives_failed || number != app.received + 1) {
    return fail("C2: receive " + std::to_string(number) + " completes out of its turn");
  }
  app.received = number;
  if (number > peer.notified) return fail("C4: a receive completes for nothing");
  const uint32_t request = peer.notifications[number - 1];
  const Sent& sent = peer.sends[request - 1];
  const bool with_imm = sent.opcode != IBV_WR_SEND;
  const bool fits =
      wc.opcode ==
          (sent.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV) &&
      wc.byte_len == kLength &&
      (!with_imm || (wc.imm_data == request && (wc.wc_flags & IBV_WC_WITH_IMM) != 0));
  if (!fits) fail("C1: receive " + std::to_string(number) + " tells of another request");
  if (app.receive_memory[number - 1] != request)
    fail("C2: a receive's buffer holds another request");
  for (uint32_t i = 1; i < request; i++) {
    const Sent& before = peer.sends[i - 1];
    if (is_write(before.opcode) && app.memory[before.slot] < i) {
      fail("C2: " + name_of(1 - host, i) + " is not in memory when request " +
           std::to_string(request) + " is seen");
    }
  }
  app.seen = request;
}

bool Judge::is_done(int host) const {
  const App& app = at(host);
  const App& peer = at(1 - host);
  if (app.received != peer.notifications.size()) return false;
  if (app.ran != app.sends.size()) return false;
  for (size_t i = app.next_done; i < app.sends.size(); i++) {
    if (app.sends[i].signaled) return false;
  }
  return true;
}

bool Judge::is_over(int host) const {
  const App& app = at(host);
  if (app.gone || app.sends.empty()) return true;
  if (app.last_error == app.sends.size()) return true;
  return std::none_of(app.sends.begin() + static_cast<std::ptrdiff_t>(app.next_done),
                      app.sends.end(), [](const Sent& sent) { return sent.signaled; });
}

}  // namespace shift::sim
