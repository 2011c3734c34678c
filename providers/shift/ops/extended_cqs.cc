// Making extended completion queues, and reading the fields of the current completion.
#include "ops/extended_cqs.h"

#include <memory>

#include "group/extended.h"
#include "ops/completion_queues.h"
#include "ops/deputy.h"
#include "ops/entry.h"
#include "ops/tables.h"

namespace shift::ops {
namespace {

using group::CompletionQueue;
using group::Context;
using group::ExtendedPoll;
using group::kDefault;
using group::WcExtra;

const ibv_wc& current(ibv_cq_ex* cq) {
  return *CompletionQueue::from(cq)->shown;
}
const WcExtra& current_extra(ibv_cq_ex* cq) {
  const ExtendedPoll& poll = *CompletionQueue::from(cq)->extended;
  return poll.batch_extra[poll.next - 1];
}

// Reads the default NIC's clock; the estimates of clock_at() start from this reading.
void clock_read(ExtendedPoll& poll, Context& context) {
  poll.clock_khz = context.device_attr.hca_core_clock;
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  ibv_context* real = context.members[kDefault].real;
  const auto* verbs = verbs_get_ctx_op(real, query_rt_values);
  timespec host{};
  clock_gettime(CLOCK_MONOTONIC, &host);
  if (verbs == nullptr || verbs->query_rt_values(real, &values) != 0) return;
  const auto ns = [](const timespec& t) {
    return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
  };
  poll.clock_set(ns(values.raw_clock), ns(host));
}

}  // namespace

void install_readers(ibv_cq_ex& cq, uint64_t wc_flags) {
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = [](ibv_cq_ex* c) { return current(c).opcode; };
  cq.read_vendor_err = [](ibv_cq_ex* c) { return current(c).vendor_err; };
  cq.read_wc_flags = [](ibv_cq_ex* c) { return current(c).wc_flags; };
  // As with stock, only the fields that the application asked for have a function.
  if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN) {
    cq.read_byte_len = [](ibv_cq_ex* c) { return current(c).byte_len; };
  }
  if (wc_flags & IBV_WC_EX_WITH_IMM) {
    cq.read_imm_data = [](ibv_cq_ex* c) { return current(c).imm_data; };
  }
  if (wc_flags & IBV_WC_EX_WITH_QP_NUM) {
    cq.read_qp_num = [](ibv_cq_ex* c) { return current(c).qp_num; };
  }
  if (wc_flags & IBV_WC_EX_WITH_SRC_QP) {
    cq.read_src_qp = [](ibv_cq_ex* c) { return current(c).src_qp; };
  }
  if (wc_flags & IBV_WC_EX_WITH_SLID) {
    cq.read_slid = [](ibv_cq_ex* c) { return uint32_t{current(c).slid}; };
  }
  if (wc_flags & IBV_WC_EX_WITH_SL) {
    cq.read_sl = [](ibv_cq_ex* c) { return current(c).sl; };
  }
  if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS) {
    cq.read_dlid_path_bits = [](ibv_cq_ex* c) { return current(c).dlid_path_bits; };
  }
  if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) {
    cq.read_completion_ts = [](ibv_cq_ex* c) { return current_extra(c).device_time; };
  }
  if (wc_flags & IBV_WC_EX_WITH_CVLAN) {
    cq.read_cvlan = [](ibv_cq_ex* c) { return current_extra(c).cvlan; };
  }
  if (wc_flags & IBV_WC_EX_WITH_FLOW_TAG) {
    cq.read_flow_tag = [](ibv_cq_ex* c) { return current_extra(c).flow_tag; };
  }
  if (wc_flags & IBV_WC_EX_WITH_TM_INFO) {
    cq.read_tm_info = [](ibv_cq_ex* c, ibv_wc_tm_info* info) { *info = current_extra(c).tm; };
  }
  if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) {
    cq.read_completion_wallclock_ns = [](ibv_cq_ex* c) { return current_extra(c).wallclock_ns; };
  }
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* init) try {
  // A field without a function here would be a null pointer in the program.
  constexpr uint32_t kKnown = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  if (asks_for_newer(init->comp_mask, kKnown) ||
      asks_for_newer(init->wc_flags, IBV_CREATE_CQ_SUP_WC_FLAGS)) {
    return nullptr;
  }
  Context* c = Context::from(context);
  auto cq = std::make_unique<CompletionQueue>();
  cq->extended = std::make_unique<ExtendedPoll>(*cq);
  ExtendedPoll& poll = *cq->extended;
  poll.needs_device = (init->wc_flags & ~uint64_t{IBV_WC_STANDARD_FLAGS}) != 0;
  ibv_cq_init_attr_ex attr = *init;
  attr.cqe = static_cast<uint32_t>(room_for(*c, *cq, static_cast<int>(init->cqe), 0));
  cq->asked = static_cast<int>(init->cqe);
  if ((init->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) && init->parent_domain != nullptr) {
    cq->domain = virtual_pd(init->parent_domain);
    attr.parent_domain = cq->domain->real[kDefault];
  }
  attr.cq_context = cq.get();
  // The layer itself reads the standard fields of each completion that it polls by extended calls.
  attr.wc_flags |= IBV_WC_STANDARD_FLAGS;
  poll.real = make_at_home(*c, [&](Home at) {
    attr.channel = real_channel(*c, at, init->channel);
    if (at.is_deputy) {
      // The domain is another NIC's, and so are the vectors.
      attr.comp_mask &= ~uint32_t{IBV_CQ_INIT_ATTR_MASK_PD};
      attr.comp_vector = 0;
    }
    return verbs_get_ctx(at.real)->create_cq_ex(at.real, &attr);
  });
  if (poll.real == nullptr) return nullptr;
  if (cq->domain != nullptr) cq->domain->users++;
  poll.read_flags = static_cast<uint32_t>(init->wc_flags);
  if (poll.needs_device) clock_read(poll, *c);
  cq->real[kDefault] = ibv_cq_ex_to_cq(poll.real);
  install_readers(cq->cq_ex, init->wc_flags);
  return &publish_cq(std::move(cq), *c, init->channel, init->cq_context)->cq_ex;
} catch (const std::bad_alloc&) {
  errno = ENOMEM;
  return nullptr;
}

}  // namespace shift::ops
