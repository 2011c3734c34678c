#include "group/member_qp.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>

#include "group/command_threads.h"
#include "group/completion.h"
#include "group/context.h"
#include "group/domain.h"
#include "group/group.h"
#include "group/port.h"
#include "group/shared_queue.h"
#include "group/stock.h"
#include "group/twins.h"
#include "util/config.h"
#include "util/planted.h"

namespace shift::group {
namespace {

constexpr uint8_t kHopLimit = 64;

// SplitMix64: any seed is good, and its state is a counter, which threads can share.
uint64_t draw(Context& context) {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15;
  uint64_t z = context.psn_draws.fetch_add(kStep, std::memory_order_relaxed) + kStep;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

// About a quarter of the PSN space after what the last connection got to. Packets of that
// connection that are still under way, at most half the space, do not fit into the new one.
uint32_t next_psn(Context& context, uint32_t last) {
  return (last + (1u << 22) + static_cast<uint32_t>(draw(context) & 0xfffff)) & 0xffffff;
}

// Notes what the connection has got to, before that is lost. If the NIC does not tell, the start of
// the connection has to do.
void note_reached(Group& group, int member) {
  ibv_qp* real = group.real[member];
  if (!group.life.members[member].can_send) return;
  {
    std::lock_guard lock(group.attr_mutex);
    if (group.life.members[member].reached_psn) return;  // it is known, or newer numbers are
  }
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (stock->query_qp(real, &attr, IBV_QP_SQ_PSN, &init) != 0) return;
  std::lock_guard lock(group.attr_mutex);
  group.life.members[member].reached_psn = attr.sq_psn & 0xffffff;
}

int to_init(Group& group, ibv_qp* real) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = kPortNumber;
  {
    std::lock_guard lock(group.attr_mutex);
    // The peer's empty WRITEs must be let in: probes, drain markers, stand-ins. They name no
    // memory, and regions keep the rights that the application gave them.
    attr.qp_access_flags = group.life.asked.attr.qp_access_flags | IBV_ACCESS_REMOTE_WRITE;
  }
  return stock->modify_qp(real, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int to_rtr(Group& group, int member, const wire::QpAddress& own, const wire::QpAddress& peer) {
  ibv_context* context = group.context->members[member].real;
  uint32_t& known_index = group.context->members[member].gid_index;
  ibv_qp_attr attr{};
  uint32_t type = IBV_GID_TYPE_ROCE_V2;
  // The application's own path is connected again with the application's attributes, since the peer
  // does this, too.
  bool is_original;
  {
    std::lock_guard lock(group.attr_mutex);
    attr = group.life.asked.attr;
    is_original = member == kDefault && own.gid == group.life.ends.local.gid &&
                  peer.gid == group.life.ends.remote.gid;
    if (is_original) type = group.life.ends.gid_type;
  }
  const uint32_t likely = is_original ? attr.ah_attr.grh.sgid_index : known_index;
  const int index = gid_index_of(context, kPortNumber, own.gid, type, likely);
  if (index < 0) return EADDRNOTAVAIL;
  if (!is_original) known_index = static_cast<uint32_t>(index);
  const uint8_t sl = attr.ah_attr.sl;
  const ibv_global_route route = attr.ah_attr.grh;
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = std::min(attr.path_mtu, static_cast<ibv_mtu>(peer.mtu));
  {
    std::lock_guard lock(group.attr_mutex);
    group.life.members[member].path_mtu = mtu_bytes(attr.path_mtu);
  }
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = peer.psn;
  attr.ah_attr = {};
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = kPortNumber;
  attr.ah_attr.sl = sl;
  attr.ah_attr.grh = route;
  attr.ah_attr.grh.dgid = peer.gid.to_verbs();
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(index);
  // A hop limit that is enough on the link may be too small between addresses that are routed.
  if (!is_original && !group.life.ends.local.gid.ipv4())
    attr.ah_attr.grh.hop_limit = std::max(route.hop_limit, kHopLimit);
  return stock->modify_qp(group.real[member], &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

}  // namespace

int member_qp_to_state(Group& group, int member, ibv_qp_state state) {
  ibv_qp* real = group.real[member];
  if (real == nullptr) return ENODEV;
  ibv_qp_attr attr{};
  attr.qp_state = state;
  const int error = stock->modify_qp(real, &attr, IBV_QP_STATE);
  const RingReader& reader = group.reader;
  if (error == 0 && state == IBV_QPS_RESET && member == kDefault && reader.table != nullptr)
    reader.table->forget(&reader.rings);
  return error;
}

int member_qp_shut(Group& group, int member) {
  if (is_late(*group.context, member)) return EBUSY;
  if (member == kDefault) return member_qp_to_state(group, member, IBV_QPS_ERR);
  const auto error = std::make_shared<int>(ENODEV);
  const auto waited = on_nic_and_wait(*group.context, member, [held = Held(&group), member, error] {
    *error = member_qp_to_state(*held, member, IBV_QPS_ERR);
  });
  if (waited == CommandThreads::Waited::kNever)
    return member_qp_to_state(group, member, IBV_QPS_ERR);
  return waited == CommandThreads::Waited::kDone ? *error : EBUSY;
}

void bound_patience(ibv_qp_attr& attr) {
  const auto cap = static_cast<uint8_t>(config().rc_timeout_max);
  if (attr.timeout == 0 || attr.timeout > cap) attr.timeout = cap;
  // Some NICs (rxe) repeat without end when the count is the largest one, 7. Then no error would
  // ever show a fault.
  constexpr uint8_t kRetriesMax = 6;
  attr.retry_cnt = std::min(attr.retry_cnt, kRetriesMax);
}

int member_qp_create(Group& group, int member) {
  if (group.real[member] != nullptr) return 0;
  Context& context = *group.context;
  if (has_twins_on_demand(context)) {
    for (CompletionQueue* cq : {group.send_cq, group.recv_cq}) twin_cq_ensure(*cq, member);
  }
  if (group.send_cq->real[member] == nullptr || group.recv_cq->real[member] == nullptr ||
      group.pd->real[member] == nullptr) {
    return ENODEV;
  }
  ibv_qp_init_attr init{};
  init.qp_context = &group;
  init.send_cq = group.send_cq->real[member];
  init.recv_cq = group.recv_cq->real[member];
  init.cap = group.cap;
  if (group.srq != nullptr) {
    init.srq = group.srq->members[member].real;
    if (init.srq == nullptr) return ENODEV;
  }
  init.qp_type = IBV_QPT_RC;
  init.sq_sig_all = group.sq_sig_all;
  ibv_qp* real = stock->create_qp(group.pd->real[member], &init);
  if (real == nullptr) return errno;
  group.real[member] = real;
  std::lock_guard lock(context.mutex);
  context.members[member].qps.insert(real->qp_num, &group.counters);
  return 0;
}

int member_qp_address(Group& group, int member, const wire::Gid& gid, wire::QpAddress* own) {
  if (group.real[member] == nullptr) return ENODEV;
  own->gid = gid;
  own->qpn = group.real[member]->qp_num;
  note_reached(group, member);
  std::lock_guard lock(group.attr_mutex);
  MemberLife& life = group.life.members[member];
  const uint32_t begun =
      life.last_psn.value_or(member == kDefault ? group.life.asked.attr.sq_psn : 0);
  own->psn = next_psn(*group.context, life.reached_psn.value_or(begun));
  life.last_psn = life.reached_psn = own->psn;
  own->mtu = static_cast<uint8_t>(group.life.asked.attr.path_mtu);
  return 0;
}

int member_qp_connect(Group& group, int member, const wire::QpAddress& own,
                      const wire::QpAddress& peer) {
  ibv_qp* real = group.real[member];
  if (real == nullptr) return ENODEV;
  // Old receives on the member's shared receive queue must not be written into.
  if (group.srq != nullptr && !group.srq->cleanse(member)) return EAGAIN;
  {
    std::lock_guard lock(group.modify_mutex[member]);
    group.life.members[member].last_taken = false;
    group.life.members[member].can_send = false;
    group.life.members[member].own_packets = 0;
    if (int error = member_qp_to_state(group, member, IBV_QPS_RESET)) return error;
  }
  {
    std::lock_guard lock(group.attr_mutex);
    group.life.members[member].reached_psn.reset();
  }
  own_forget(group, member);
  std::lock_guard lock(group.modify_mutex[member]);
  if (int error = to_init(group, real)) return error;
  if (int error = to_rtr(group, member, own, peer)) return error;
  return start_sending(group, member);
}

int start_sending(Group& group, int member) {
  ibv_qp* real = group.real[member];
  if (real == nullptr || real->state != IBV_QPS_RTR) return 0;
  ibv_qp_attr attr{};
  {
    std::lock_guard lock(group.attr_mutex);
    const auto psn = group.life.members[member].last_psn;
    // The QP does not start before the application's QP: its READ depth and retry counts are not
    // known until then, and a QP that the application leaves in RTR stays there.
    if (!psn || !(group.life.asked.mask & IBV_QP_SQ_PSN)) return 0;
    attr = group.life.asked.attr;
    attr.sq_psn = *psn;
  }
  attr.qp_state = IBV_QPS_RTS;
  bound_patience(attr);
  const int error =
      stock->modify_qp(real, &attr,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error == 0) group.life.members[member].can_send = true;
  return error;
}

int member_qp_start_sending(Group& group, int member) {
  std::lock_guard lock(group.modify_mutex[member]);
  return start_sending(group, member);
}

int member_qp_stop(Group& group, int member) {
  ibv_qp* real = group.real[member];
  note_reached(group, member);
  if (const int error = member_qp_to_state(group, member, IBV_QPS_RESET)) return error;
  if (to_init(group, real) == 0) (void)member_qp_to_state(group, member, IBV_QPS_ERR);
  return 0;
}

void member_qp_probe(Group& group, int member) {
  // While this thread holds the mutex, the group does not begin to end, and its QP stays.
  std::lock_guard lock(group.send.mutex);
  if (group.is_ending && !SHIFT_PLANT(ending_probed)) {
    group.life.members[member].probe = Probe::kFailed;
    return;
  }
  ibv_send_wr wr{}, *bad = &wr;
  wr.wr_id = own_begin(group, member, OwnRequest::Kind::kProbe);
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_qp* real = group.real[member];
  group.life.members[member].probe = Probe::kPosted;
  if (real->context->ops.post_send(real, &wr, &bad) == 0) {
    group.life.members[member].own_packets++;
  } else {
    if (bad != nullptr) own_refused(group, member, wr.wr_id);
    group.life.members[member].probe = Probe::kFailed;
  }
}

Probe member_qp_probe_look(Group& group, int member) {
  {
    std::lock_guard lock(group.send_cq->mutex);
    // The default's CQ belongs to the application's polling thread while anything is on it.
    if (member != kDefault) collect_member(*group.send_cq, member);
  }
  if (member == kDefault) inspect(*group.send_cq);
  return group.life.members[member].probe;
}

void member_qp_probe_forget(Group& group, int member) {
  group.life.members[member].probe = Probe::kNone;
}

namespace {

// The timeout is a power of two times 4.096 us, and the NIC may wait for four times the timeout in
// each try (IBTA 9.7.6.1.3).
std::chrono::nanoseconds patience_with(uint8_t timeout, uint8_t retries) {
  return 4 * std::chrono::nanoseconds{int64_t{4096} << (timeout & 31)} * (retries + 1);
}

}  // namespace

std::optional<QpHealth> member_qp_health(Group& group, int member) {
  ibv_qp* real = group.real[member];
  if (real == nullptr) return std::nullopt;
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  constexpr int kAsked = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT;
  if (stock->query_qp(real, &attr, kAsked, &init) != 0) return std::nullopt;
  const bool is_broken = attr.qp_state == IBV_QPS_ERR || attr.qp_state == IBV_QPS_SQE;
  if (attr.timeout == 0) return QpHealth{is_broken, {}};
  return QpHealth{is_broken, patience_with(attr.timeout, attr.retry_cnt)};
}

std::chrono::nanoseconds asked_patience(Group& group) {
  std::lock_guard lock(group.attr_mutex);
  if (!(group.life.asked.mask & IBV_QP_TIMEOUT)) return {};
  const ibv_qp_attr& asked = group.life.asked.attr;
  // 0 asks for patience without end. The longest patience with an end comes close, and keeps C6.
  constexpr uint8_t kLongest = 31;
  return patience_with(asked.timeout == 0 ? kLongest : asked.timeout, asked.retry_cnt);
}

}  // namespace shift::group
