#include "group/read_back.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "group/command_threads.h"
#include "group/context.h"
#include "group/domain.h"
#include "group/fault_sink.h"
#include "group/group.h"
#include "group/keys.h"
#include "group/locked.h"
#include "group/own_qp.h"
#include "group/park.h"
#include "group/port.h"
#include "group/stock.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::group {
namespace {

using State = ReadBack::State;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint32_t kReads = 16;
// A NIC that works answers its own READ within microseconds.
constexpr microseconds kLookFor{30};
constexpr milliseconds kReadPatience{50};
constexpr uint64_t kMembers = 0xffffffff;  // the half of `owed` with the members

uint32_t bit_of(int member) {
  return 1u << member;
}

bool is_gone(const Context& context, int member) {
  return context.members[member].dead || context.members[member].port_down;
}

// Whether other groups of the context carry their traffic over another NIC than the default, or are
// about to.
bool is_any_away(Context& context) {
  std::lock_guard lock(context.mutex);
  return std::ranges::any_of(context.groups, [](const Group* one) {
    return !one->life.is_self && one->life.path.off_default;
  });
}

// Whether data may still come through the member to a group that can leave it. A group that is not
// protected cannot leave.
bool is_carrying(Context& context, int member) {
  std::lock_guard lock(context.mutex);
  return std::ranges::any_of(context.groups, [member](const Group* one) {
    return !one->life.is_self && is_protected(*one) && one->life.path.member == member;
  });
}

void destroy(Group& group, ReadBack::Member& one) {
  if (one.qp != nullptr) {
    {
      std::lock_guard lock(group.context->mutex);
      std::erase(group.context->own_qps, one.qp);
    }
    (void)stock->destroy_qp(one.qp);
  }
  if (one.region != nullptr) (void)stock->dereg_mr(one.region);
  if (one.cq != nullptr) (void)stock->destroy_cq(one.cq);
  if (one.page != nullptr) munmap(one.page, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  one.qp = nullptr;
  one.region = nullptr;
  one.cq = nullptr;
  one.page = nullptr;
  one.unanswered = 0;
}

bool make(Group& group, int member) {
  ReadBack::Member& one = group.read_back.members[member];
  destroy(group, one);
  ibv_context* real = group.context->members[member].real;
  // A parent domain is not used: its allocators belong to the program, and no command thread may
  // call them.
  ibv_pd* pd = group.pd->domain().real[member];
  const auto addresses = port_addresses(real, kPortNumber);
  if (pd == nullptr || addresses.empty()) return false;
  // The page is not shared with anything: fork support may take it from children.
  const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  one.page = page;
  one.cq = stock->create_cq(real, kReads, nullptr, nullptr, 0);
  one.region = stock->reg_mr_iova2(pd, page, size, reinterpret_cast<uintptr_t>(page),
                                   IBV_ACCESS_LOCAL_WRITE);
  if (one.cq == nullptr || one.region == nullptr) return false;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = one.cq;
  init.cap.max_send_wr = kReads;
  init.cap.max_send_sge = 1;
  init.qp_type = IBV_QPT_RC;
  init.sq_sig_all = 1;
  one.qp = stock->create_qp(pd, &init);
  if (one.qp == nullptr) return false;
  {
    std::lock_guard lock(group.context->mutex);
    group.context->own_qps.push_back(one.qp);
  }
  const PortAddress& own = addresses.front();
  return own_qp_connect(one.qp, one.qp, own.gid, static_cast<int>(own.index),
                        IBV_ACCESS_REMOTE_READ);
}

bool post(const ReadBack::Member& one, uint64_t address, uint32_t rkey) {
  ibv_sge sge{};
  sge.addr = reinterpret_cast<uintptr_t>(one.region->addr);
  sge.length = 1;
  sge.lkey = one.region->lkey;
  ibv_send_wr wr{}, *bad = &wr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_READ;
  wr.wr.rdma.remote_addr = address;
  wr.wr.rdma.rkey = rkey;
  return one.qp->context->ops.post_send(one.qp, &wr, &bad) == 0;
}

bool wants_making(ReadBack::Member& one) {
  auto none = State::kNone;
  if (!one.state.compare_exchange_strong(none, State::kMaking)) return false;
  one.is_used = true;
  return true;
}

// Gives the member the layer's READ, if it can take it by now.
void ask(Group& group, int member, const ibv_send_wr& wr) {
  ReadBack& back = group.read_back;
  ReadBack::Member& one = back.members[member];
  const uint32_t bit = bit_of(member);
  if (wants_making(one)) fault_sink->read_back_wanted(&group);
  if (is_gone(*group.context, member)) {
    back.to_ask &= ~bit;
    return;
  }
  if (one.state == State::kMaking || one.ending != 0) return;
  if (one.state == State::kBroken) {
    // What came before the fence is in memory when the fence is over, and then nothing comes.
    if (is_carrying(*group.context, member) && !SHIFT_PLANT(read_back_passed_over)) {
      fault_sink->read_back_failed(&group, member);
    } else {
      back.to_ask &= ~bit;
    }
    return;
  }
  uint32_t rkey = 0;
  const KeyState key = exported_key(*group.context, member, group.pd, wr.wr.rdma.rkey, &rkey);
  if (key == KeyState::kPending) return;
  if (key == KeyState::kReady) {
    if (one.unanswered == kReads || !post(one, wr.wr.rdma.remote_addr, rkey)) {
      one.state = State::kBroken;
      return;
    }
    one.unanswered++;
    back.under_way |= bit;
  }
  // If the key is missing, nothing came into this memory through the NIC.
  back.to_ask &= ~bit;
}

enum class Answer : uint8_t { kNone, kRight, kWrong };

Answer answer_of(Group& group, int member) {
  ReadBack::Member& one = group.read_back.members[member];
  ibv_wc wc[kReads];
  const int got = one.cq->context->ops.poll_cq(one.cq, kReads, wc);
  const bool failed = got < 0 || std::any_of(wc, wc + std::max(got, 0), [](const ibv_wc& one_wc) {
                        return one_wc.status != IBV_WC_SUCCESS;
                      });
  one.unanswered -= static_cast<uint32_t>(std::max(got, 0));
  const bool is_late = steady_clock::now() - group.read_back.since > kReadPatience;
  // READs of one QP end in their order, so the last one is over when all are.
  if (!failed && one.unanswered == 0) return Answer::kRight;
  return failed || is_late || is_gone(*group.context, member) ? Answer::kWrong : Answer::kNone;
}

void look(Group& group) {
  ReadBack& back = group.read_back;
  for (int m = 0; m < group.context->member_count; m++) {
    if ((back.under_way & bit_of(m)) == 0) continue;
    const Answer answer = answer_of(group, m);
    if (answer == Answer::kNone) continue;
    back.under_way &= ~bit_of(m);
    if (answer == Answer::kRight) continue;
    SHIFT_DEBUG("qp 0x%x: %s does not read back", group.qpn(), group.context->name(m));
    back.members[m].state = State::kBroken;
    back.to_ask |= bit_of(m);
  }
}

bool reads_bytes(const ibv_send_wr& wr) {
  return std::any_of(wr.sg_list, wr.sg_list + wr.num_sge,
                     [](const ibv_sge& sge) { return sge.length != 0; });
}

void begin(Group& group) {
  ReadBack& back = group.read_back;
  back.position = group.send.posted;
  back.departures = group.life.path.departures;
  // In this order: traffic that leaves the default after the look is seen by a later READ.
  back.seen = back.owed;
  back.is_home = group.life.path.member == kDefault && !is_any_away(*group.context);
  back.to_ask = static_cast<uint32_t>(back.seen & kMembers) & ~bit_of(group.life.path.member);
  back.under_way = 0;
  back.is_over = false;
  back.since = steady_clock::now();
}

}  // namespace

bool read_back_owed(const Group& group) {
  return (group.read_back.owed & kMembers) != 0;
}

void read_back_prepare(Group& group) {
  for (int m = 0; m < group.context->member_count; m++) {
    (void)wants_making(group.read_back.members[m]);
  }
}

void read_back_make(Group& group, int member) {
  ReadBack::Member& one = group.read_back.members[member];
  if (one.state != State::kMaking) return;
  const bool made = make(group, member);
  if (!made) {
    SHIFT_WARN_LIMITED(
        "qp 0x%x: no QP on %s to read back (errno %d): the context's data leaves that NIC before a "
        "READ through the QP",
        group.qpn(), group.context->name(member), errno);
  }
  one.state = made ? State::kReady : State::kBroken;
}

void read_back_begin(Group& group, int member) {
  ReadBack& back = group.read_back;
  auto broken = State::kBroken;
  back.members[member].state.compare_exchange_strong(broken, State::kNone);
  uint64_t owed = back.owed;
  uint64_t more;
  do {
    more = (owed | bit_of(kDefault) | bit_of(member)) + (kMembers + 1);
  } while (!back.owed.compare_exchange_weak(owed, more));
  {
    std::lock_guard lock(group.send.mutex);
    if (group.send.route != Route::kOnDefault) return;
  }
  Group* const one = &group;
  park({&one, 1});
  if (!batch_is_over(group)) {
    // The batch began before the QP was connected to itself. A round waits for its end.
    return fault_sink->fault(&group, fsm::Event::kPathFault, kNoMember,
                             {"a batch is older than the connection", Detector::kNeighbour});
  }
  {
    std::lock_guard send(group.send.mutex);
    std::lock_guard recv(group.recv.mutex);
    // Nothing else changes: the group goes on with the connection that it has.
    if (group.send.route == Route::kParked) group.send.route = Route::kOnPath;
    if (group.recv.route == Route::kParked) group.recv.route = Route::kOnPath;
  }
  fault_sink->pump_wanted(&group);
}

void read_back_end(Group& group) {
  ReadBack& back = group.read_back;
  for (int m = 0; m < group.context->member_count; m++) {
    ReadBack::Member& one = back.members[m];
    if (!one.is_used.exchange(false)) continue;
    {
      std::lock_guard send(group.send.mutex);
      ++one.ending;  // from here on no thread posts there
    }
    const auto end = [held = Held(&group), &one] {
      destroy(*held, one);
      one.state = State::kNone;
      --one.ending;
    };
    // Those on the default NIC keep the application from destroying its domain there.
    if (m == kDefault && !is_late(*group.context, m)) {
      (void)on_nic_and_wait(*group.context, m, end);
    } else {
      (void)on_nic(*group.context, m, end);
    }
  }
  back.owed = 0;
  back.position = UINT64_MAX;
  back.to_ask = back.under_way = 0;
}

bool read_back_done(Group& group, const ibv_send_wr& wr) {
  ReadBack& back = group.read_back;
  if (!group.life.is_self || !read_back_owed(group) || !reads_bytes(wr)) return true;
  if (SHIFT_PLANT(read_back_skipped)) return true;
  if (back.position != group.send.posted || back.departures != group.life.path.departures) {
    begin(group);
  } else if (back.is_over) {
    return true;  // this was asked before, and the request is still not posted
  }
  const auto ask_all = [&] {
    for (int m = 0; m < group.context->member_count; m++) {
      if ((back.to_ask & bit_of(m)) != 0) ask(group, m, wr);
    }
  };
  ask_all();
  const auto until = steady_clock::now() + kLookFor;
  do look(group);
  while (back.under_way != 0 && steady_clock::now() < until);
  ask_all();  // those that have just failed may have no data to wait for
  if (back.to_ask != 0 || back.under_way != 0) return false;
  back.is_over = true;
  // Unless the control thread has added to it meanwhile.
  if (back.is_home) back.owed.compare_exchange_strong(back.seen, back.seen & ~kMembers);
  return true;
}

}  // namespace shift::group
