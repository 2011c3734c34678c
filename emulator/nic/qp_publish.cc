// Publishes the state of queue pairs.
#include "nic/qp_publish.h"

#include <string>

#include "nic/engine_core.h"
#include "nic/nic_model.h"

namespace cxemu {

namespace {

const char* reason_text(Syndrome syndrome, int event) {
  switch (syndrome) {
    case kSyndromeLocalLength:
      return "local length error";
    case kSyndromeLocalQpOperation:
      return "local QP operation error";
    case kSyndromeLocalProtection:
      return "local protection error";
    case kSyndromeBadResponse:
      return "bad response";
    case kSyndromeRemoteInvalidRequest:
      return "remote invalid request";
    case kSyndromeRemoteAccess:
      return "remote access error";
    case kSyndromeRemoteOperation:
      return "remote operation error";
    case kSyndromeRetryExceeded:
      return "transport retries exceeded";
    case kSyndromeRnrRetryExceeded:
      return "RNR retries exceeded";
    default:
      break;
  }
  if (event == IBV_EVENT_QP_ACCESS_ERR) return "refused a request: access";
  if (event == IBV_EVENT_QP_REQ_ERR) return "refused a request: invalid";
  return "error";
}

}  // namespace

void qp_publish(const Qp& qp) {
  FabricQp* entry = qp.entry;
  if (entry == nullptr) return;
  const auto put = [](std::atomic<uint32_t>& to, uint32_t value) {
    to.store(value, std::memory_order_relaxed);
  };
  put(entry->state, static_cast<uint32_t>(qp.state));
  put(entry->peer_number, qp.attr.dest_qp_num);
  put(entry->peer_ipv4_be, qp.remote_ipv4_be);
  put(entry->sq_psn, qp.requester.psn_sent);
  put(entry->rq_psn, qp.responder.psn_expected);
}

void qp_error_publish(const Qp& qp, Syndrome syndrome, int event) {
  if (qp.entry != nullptr) qp.entry->syndrome.store(syndrome, std::memory_order_relaxed);
  qp_publish(qp);
  FabricFile& fabric = qp.nic.core().fabric();
  event_log(fabric, {.kind = EventKind::kQpError,
                     .nic = nic_number(fabric, qp.nic.fabric()),
                     .qpn = qp.number,
                     .syndrome = syndrome,
                     .text = reason_text(syndrome, event)});
}

}  // namespace cxemu
