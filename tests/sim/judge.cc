#include "sim/judge.h"

#include <algorithm>

#include "group/journal.h"
#include "ops/entry.h"
#include "ops/tables.h"

namespace shift::sim {
namespace {

using group::is_atomic;
using group::is_notification;

constexpr uint64_t kReceiveTag = 1u << 20;
constexpr uint64_t kOwnRequests = 1u << 21;  // above are the layer's own requests
constexpr uint64_t kCounter = 0x20000;

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

// ---- What the applications do.

void Judge::send(int host, const AppPlan::Send& plan) {
  App& app = at(host);
  app.sends.push_back({plan.opcode, plan.signaled, plan.slot, plan.length, path_faults_});
  app.sends.back().too_late = app.group->send.route == group::Route::kError;
  const uint64_t number = app.sends.size();
  if (is_notification(plan.opcode)) app.notifications.push_back(static_cast<uint32_t>(number));
  ibv_sge sge{source_of(number), plan.length, group::kLkey};
  ibv_send_wr wr{}, *bad;
  wr.wr_id = number;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = plan.opcode;
  wr.send_flags = plan.signaled ? IBV_SEND_SIGNALED : 0;
  wr.imm_data = static_cast<uint32_t>(number);
  if (is_atomic(plan.opcode)) {
    wr.imm_data = 0;
    wr.wr.atomic = {kCounter, 1, 2, group::kRkey};
  } else if (plan.opcode != IBV_WR_SEND && plan.opcode != IBV_WR_SEND_WITH_IMM) {
    wr.wr.rdma = {slot_address(plan.slot), group::kRkey};
  }
  const auto post = app.group->asks_responder() ? ops::post_send_counted : ops::post_send;
  if (post(app.group->handle(), &wr, &bad) != 0) {
    fail("C9: " + name_of(host, number) + " is refused");
  }
}

void Judge::receive(int host) {
  App& app = at(host);
  const uint64_t number = ++app.receives;
  app.receive_memory.resize(number);
  ibv_sge sge{buffer_of(number), AppPlan::kLengthMax, group::kLkey};
  ibv_recv_wr wr{kReceiveTag + number, nullptr, &sge, 1}, *bad;
  if (ops::post_recv(app.group->handle(), &wr, &bad) != 0) {
    fail("C9: receive " + std::to_string(number) + " is refused");
  }
}

bool Judge::has_completions(int host) const {
  const App& app = at(host);
  if (app.gone) return false;
  const group::CompletionQueue& cq = *app.group->send_cq;
  if (!cq.side.empty() || !group::FakeCq::of(cq.real[group::kDefault]).waiting.empty()) return true;
  if (!cq.poll_all || cq.slow_groups == 0) return false;  // a poll does not look there
  return std::ranges::any_of(cq.real, [](ibv_cq* real) {
    return real != nullptr && !group::FakeCq::of(real).waiting.empty();
  });
}

// ---- What the NICs do.

uint64_t Judge::executed(const Packet& packet, const group::PostedRecv* receive) {
  if (packet.wr.wr_id > kOwnRequests || packet.wr.num_sge == 0) return 0;  // it writes nothing
  App& from = at(packet.host);
  App& to = at(1 - packet.host);
  const auto number = static_cast<uint32_t>(packet.wr.wr_id);
  const std::string who = name_of(packet.host, number);
  const auto broken = [&](const std::string& rule) {
    fail(rule);
    return uint64_t{0};
  };
  if (number == 0 || number > from.sends.size()) return broken("C2: " + who + " was never posted");
  Sent& sent = from.sends[number - 1];
  // The end of a WRITE may run without its beginning (if the responder was asked).
  const uint64_t skipped = packet.sge.addr - source_of(number);
  const bool fits = sent.opcode == packet.wr.opcode && skipped < sent.length &&
                    skipped + packet.sge.length == sent.length && skipped % kMtu == 0 &&
                    (skipped == 0 || sent.opcode == IBV_WR_RDMA_WRITE);
  if (!fits) return broken("C2: " + who + " is not what was posted");
  const uint32_t block = static_cast<uint32_t>(skipped / kMtu) + packet.part;
  if (number > from.ran + 1 || block > sent.blocks_run) {
    return broken("C2: " + who + " is executed before what comes before it");
  }
  if (to.seen > number && sent.opcode != IBV_WR_RDMA_READ) {
    return broken("C3: " + who + " is executed after the receiver saw request " +
                  std::to_string(to.seen));
  }
  if ((to.first_error != 0 || to.receives_failed) && !to.gone && !to.unfenced) {
    return broken("C6: " + who + " is executed after the receiver was given an error");
  }
  if (sent.opcode == IBV_WR_RDMA_WRITE && block < sent.blocks_run) {
    if (from.group->mode == Mode::kExact) return broken("exact: " + who + " is executed twice");
    if (from.group->mode == Mode::kAuto && !to.silent) {
      return broken("auto: " + who + " is executed twice, and no NIC of the receiver is silent");
    }
  }
  if (block < sent.blocks_run && sent.path_faults == path_faults_) {
    return broken("C5: " + who + " is executed twice without a fault of its path");
  }
  if (is_atomic(sent.opcode) && sent.executed) return broken("C5: " + who + " is executed twice");
  sent.blocks_run = std::max(sent.blocks_run, block + 1);
  if (is_write(sent.opcode)) write(packet, number, block);
  if (receive != nullptr) notify(packet, number, *receive);
  if (is_atomic(sent.opcode)) sent.found = to.counter++;
  if (packet.is_last()) {
    sent.executed = true;
    from.ran = std::max(from.ran, number);
  }
  if (sent.opcode == IBV_WR_RDMA_READ) return read_again(packet);
  return sent.found;
}

void Judge::write(const Packet& packet, uint32_t number, uint32_t block) {
  const Sent& sent = at(packet.host).sends[number - 1];
  const uint64_t begin = packet.wr.wr.rdma.remote_addr + uint64_t{packet.part} * kMtu;
  if (begin != slot_address(sent.slot) + uint64_t{block} * kMtu) {
    fail("C2: " + name_of(packet.host, number) + " writes elsewhere");
  }
  at(1 - packet.host).memory[sent.slot][block] = number;
}

void Judge::notify(const Packet& packet, uint32_t number, const group::PostedRecv& receive) {
  App& from = at(packet.host);
  const std::string who = name_of(packet.host, number);
  if (from.notified >= from.notifications.size() || from.notifications[from.notified] != number) {
    return fail("C2: " + who + " notifies out of its turn");
  }
  from.notified++;
  if (receive.wr_id != kReceiveTag + from.notified) {
    return fail("C2: " + who + " takes the receive " + std::to_string(receive.wr_id - kReceiveTag));
  }
  if (receive.sges.front().addr != buffer_of(from.notified)) {
    return fail("C2: " + who + " goes to the buffer of another receive");
  }
  at(1 - packet.host).receive_memory[from.notified - 1] = number;
}

uint64_t Judge::read_again(const Packet& packet) {
  const Sent& sent = at(packet.host).sends[packet.wr.wr_id - 1];
  return at(1 - packet.host).memory[sent.slot][0];
}

void Judge::data_came(const Packet& packet, uint64_t data) {
  App& app = at(packet.host);
  const uint64_t number = packet.wr.wr_id;
  if (number == 0 || number > app.sends.size()) return;
  Sent& sent = app.sends[number - 1];
  sent.data_came = true;
  if (is_atomic(sent.opcode)) {
    if (data != sent.found) fail("C5: " + name_of(packet.host, number) + " gets a wrong value");
    return;
  }
  uint64_t written = 0;
  for (uint64_t i = 1; i < number; i++) {
    const Sent& before = app.sends[i - 1];
    if (is_write(before.opcode) && before.slot == sent.slot) written = i;
  }
  if (data < written) {
    fail("C4: " + name_of(packet.host, number) + " reads what was there before request " +
         std::to_string(written));
  }
}

// ---- What the applications get.

void Judge::take(int host, const ibv_wc& wc) {
  App& app = at(host);
  if (app.gone) return;
  if (wc.qp_num != app.group->qpn()) fail("C9: a completion of another QP");
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
  // A request may be passed over if it is unsignaled and was executed.
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
      wc.byte_len == sent.length &&
      (!with_imm || (wc.imm_data == request && (wc.wc_flags & IBV_WC_WITH_IMM) != 0));
  if (!fits) fail("C1: receive " + std::to_string(number) + " tells of another request");
  if (app.receive_memory[number - 1] != request)
    fail("C2: a receive's buffer holds another request");
  for (uint32_t i = 1; i < request; i++) {
    if (!is_in_memory(app, peer.sends[i - 1], i)) {
      fail("C2: " + name_of(1 - host, i) + " is not in memory when request " +
           std::to_string(request) + " is seen");
    }
  }
  app.seen = request;
}

// Whether memory holds this request, or a later one that was written over it.
bool Judge::is_in_memory(const App& app, const Sent& sent, uint32_t number) const {
  if (!is_write(sent.opcode)) return true;
  for (uint32_t block = 0; block * kMtu < sent.length; block++) {
    if (app.memory[sent.slot][block] < number) return false;
  }
  return true;
}

bool Judge::has_atomic_open(int host) const {
  const App& app = at(host);
  if (app.first_error == 0) return false;
  return std::any_of(app.sends.begin() + static_cast<std::ptrdiff_t>(app.first_error - 1),
                     app.sends.end(), [this](const Sent& sent) {
                       return is_atomic(sent.opcode) && sent.path_faults != path_faults_;
                     });
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
