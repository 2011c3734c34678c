// A library for LD_PRELOAD that makes the stock verbs library, the kernel or a NIC seem to break
// one assumption of the layer, which LIAR names. So each check of shift-verify can be seen to fail,
// on emulated NICs as well as on others.
// This must come first: the verbs' own declarations decide whether their definitions here can be
// seen.
#pragma GCC visibility push(default)
#include <arpa/inet.h>
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <utility>

namespace {

bool lies(const char* name) {
  const char* lie = std::getenv("LIAR");
  return lie != nullptr && std::strcmp(lie, name) == 0;
}

template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// The functions of each context that are replaced.
std::map<ibv_context*, ibv_context_ops> real_ops;

// Requests without a signal, by QP number and wr_id.
std::set<std::pair<uint32_t, uint64_t>> unsignaled;
std::map<ibv_cq*, std::deque<ibv_wc>> kept_back;
std::set<uint32_t> entered_twice;  // ERR, by QP number
std::map<uint32_t, uint32_t> first_psn;
std::map<uint32_t, std::pair<ibv_send_wr, ibv_sge>> delayed;  // by QP number
uint8_t* last_region = nullptr;

bool is_flush(const ibv_wc& one) {
  return one.status == IBV_WC_WR_FLUSH_ERR || one.status == IBV_WC_RETRY_EXC_ERR ||
         one.status == IBV_WC_RNR_RETRY_EXC_ERR;
}

int poll(ibv_cq* cq, int count, ibv_wc* out) {
  const int got = real_ops[cq->context].poll_cq(cq, count, out);
  if (lies("unsignaled-unflushed")) {
    return static_cast<int>(
        std::remove_if(out, out + std::max(got, 0),
                       [](const ibv_wc& one) {
                         return is_flush(one) && unsignaled.contains({one.qp_num, one.wr_id});
                       }) -
        out);
  }
  if (lies("marker-overtakes")) {
    // The first flush of a queue comes after all others.
    auto& kept = kept_back[cq];
    if (got == 0 && !kept.empty() && kept.front().wr_id != UINT64_MAX) {
      *out = kept.front();
      kept.front().wr_id = UINT64_MAX;  // once is enough
      return 1;
    }
    if (got > 0 && is_flush(*out) && kept.empty()) {
      kept.push_back(*out);
      std::copy(out + 1, out + got, out);
      return got - 1;
    }
  }
  if (lies("late-receives")) {
    // What is posted in ERR comes out when ERR is entered again.
    auto& kept = kept_back[cq];
    for (int i = 0; i < got; i++) {
      if (is_flush(out[i]) && out[i].wr_id == 2000 && !entered_twice.contains(out[i].qp_num)) {
        kept.push_back(out[i]);
        std::copy(out + i + 1, out + got, out + i);
        return got - 1;
      }
    }
    if (got == 0 && !kept.empty() && entered_twice.contains(kept.front().qp_num)) {
      *out = kept.front();
      kept.pop_front();
      return 1;
    }
  }
  if (lies("wrong-byte")) {
    for (int i = 0; i < got; i++) {
      if (out[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM && ntohl(out[i].imm_data) == 400)
        last_region[5] ^= 1;
    }
  }
  return got;
}

int post(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  const auto post_send = real_ops[qp->context].post_send;
  if (lies("unsignaled-unflushed") && (wr->send_flags & IBV_SEND_SIGNALED) == 0)
    unsignaled.emplace(qp->qp_num, wr->wr_id);
  if (lies("slow-layer") && std::getenv("SHIFT_EVENTS") != nullptr) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(1);
    while (std::chrono::steady_clock::now() < end) {
    }
  }
  if (lies("notified-early") && wr->opcode == IBV_WR_RDMA_WRITE && wr->num_sge == 1 &&
      wr->sg_list->length > 4096) {
    // A large WRITE goes out only when the next one is posted: what is between overtakes it.
    auto& one = delayed[qp->qp_num];
    const bool is_first = one.first.num_sge == 0;
    one.first.sg_list = &one.second;
    if (!is_first) (void)post_send(qp, &one.first, bad);
    one = {*wr, *wr->sg_list};
    return 0;
  }
  return post_send(qp, wr, bad);
}

int arm(ibv_cq* cq, int solicited_only) {
  if (lies("errors-silent")) return 0;
  return real_ops[cq->context].req_notify_cq(cq, solicited_only);
}

}  // namespace

extern "C" {

ibv_context* ibv_open_device(ibv_device* device) {
  ibv_context* context = real<ibv_context*(ibv_device*)>("ibv_open_device")(device);
  if (context == nullptr) return nullptr;
  real_ops[context] = context->ops;
  context->ops.poll_cq = poll;
  context->ops.post_send = post;
  context->ops.req_notify_cq = arm;
  return context;
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  ibv_qp_attr changed = *attr;
  if ((mask & IBV_QP_STATE) != 0) {
    if (attr->qp_state == IBV_QPS_ERR && qp->state == IBV_QPS_ERR) entered_twice.insert(qp->qp_num);
    if (lies("err-ignored") && attr->qp_state == IBV_QPS_ERR) return 0;
    if (lies("reset-ignored") && attr->qp_state == IBV_QPS_RESET) return 0;
    if (lies("waits-long") && attr->qp_state == IBV_QPS_RTS) changed.timeout = 18;
    if (lies("old-psn") && attr->qp_state == IBV_QPS_RTS)
      changed.sq_psn = first_psn.emplace(qp->qp_num, attr->sq_psn).first->second;
    // Nothing large comes through: nothing at all reaches the other end.
    if (lies("small-packets") && attr->qp_state == IBV_QPS_RTR && attr->path_mtu > IBV_MTU_1024)
      changed.dest_qp_num ^= 0x800000;
  }
  return real<int(ibv_qp*, ibv_qp_attr*, int)>("ibv_modify_qp")(qp, &changed, mask);
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  const int result = real<int(ibv_qp*, ibv_qp_attr*, int, ibv_qp_init_attr*)>("ibv_query_qp")(
      qp, attr, mask, init);
  if (lies("psn-off")) attr->rq_psn = (attr->rq_psn - 1) & 0xffffff;
  return result;
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  const int result =
      real<int(ibv_context*, ibv_async_event*)>("ibv_get_async_event")(context, event);
  if (result == 0 && lies("no-last-wqe") && event->event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
    event->event_type = IBV_EVENT_COMM_EST;  // names a QP, too
  return result;
}

int ibv_resize_cq(ibv_cq* cq, int entries) {
  if (lies("no-resize")) return EOPNOTSUPP;
  return real<int(ibv_cq*, int)>("ibv_resize_cq")(cq, entries);
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t most,
                             uint32_t flags, size_t size) {
  ssize_t count = real<ssize_t(ibv_context*, ibv_gid_entry*, size_t, uint32_t, size_t)>(
      "_ibv_query_gid_table")(context, entries, most, flags, size);
  if (!lies("no-ipv4") || count < 0) return count;
  const auto has_ipv4 = [](const ibv_gid_entry& one) { return one.gid.raw[10] == 0xff; };
  return std::remove_if(entries, entries + count, has_ipv4) - entries;
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t size, uint64_t iova, unsigned access) {
  last_region = static_cast<uint8_t*>(address);
  return real<ibv_mr*(ibv_pd*, void*, size_t, uint64_t, unsigned)>("ibv_reg_mr_iova2")(
      pd, address, size, iova, access);
}

#undef ibv_reg_mr
ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t size, int access) {
  last_region = static_cast<uint8_t*>(address);
  return real<ibv_mr*(ibv_pd*, void*, size_t, int)>("ibv_reg_mr")(pd, address, size, access);
}

// It reads six words, however many there are.
[[gnu::no_sanitize_address]] long syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long words[6];
  for (long& word : words) word = va_arg(list, long);
  va_end(list);
  if (number == SYS_membarrier && lies("no-membarrier")) {
    errno = ENOSYS;
    return -1;
  }
  return real<long(long, ...)>("syscall")(number, words[0], words[1], words[2], words[3], words[4],
                                          words[5]);
}

ssize_t sendto(int fd, const void* bytes, size_t size, int flags, const sockaddr* to,
               socklen_t to_size) {
  if (lies("no-udp")) return static_cast<ssize_t>(size);
  return real<ssize_t(int, const void*, size_t, int, const sockaddr*, socklen_t)>("sendto")(
      fd, bytes, size, flags, to, to_size);
}

void* dlopen(const char* name, int flags) {
  if (name != nullptr && lies("no-libnl") && std::strncmp(name, "libnl", 5) == 0) return nullptr;
  return real<void*(const char*, int)>("dlopen")(name, flags);
}

}  // extern "C"

#pragma GCC visibility pop
