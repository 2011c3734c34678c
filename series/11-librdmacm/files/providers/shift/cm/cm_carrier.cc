// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Joins the logic of events of connections (cm_events.h) with librdmacm, whose functions come with
// each call, and with the core. The core is in use: librdmacm has found a virtual device.
#include "cm/cm_carrier.h"

#include "cm/cm_events.h"
#include "ops/glue.h"

namespace cm = shift::cm;
namespace ops = shift::ops;

namespace {

bool qp_is_protected(ibv_qp* qp) {
  return ops::is_protected(qp);
}
bool qp_has_left(ibv_qp* qp) {
  return ops::has_left(qp);
}
bool device_is_masked(ibv_context* context) {
  return ops::owns(context) && ops::device_is_masked(context);
}
void on_peer_gone(void (*call)(ibv_qp*)) {
  ops::on_peer_gone(call);
}

cm::Stock stock(const rdma_cm_functions* beneath) {
  return {
      .get_event = beneath->get_cm_event,
      .ack_event = beneath->ack_cm_event,
      .destroy_id = beneath->destroy_id,
      .destroy_ep = beneath->destroy_ep,
      .disconnect = beneath->disconnect,
      .migrate_id = beneath->migrate_id,
  };
}

int get_cm_event(const rdma_cm_functions* beneath, rdma_event_channel* channel,
                 rdma_cm_event** event, bool by_librdmacm) {
  return cm::get_event(stock(beneath), channel, event, by_librdmacm);
}
int ack_cm_event(const rdma_cm_functions* beneath, rdma_cm_event* event) {
  return cm::ack_event(stock(beneath), event);
}
int disconnect(const rdma_cm_functions* beneath, rdma_cm_id* id) {
  return cm::disconnect(stock(beneath), id);
}
int migrate_id(const rdma_cm_functions* beneath, rdma_cm_id* id, rdma_event_channel* channel) {
  return cm::migrate_id(stock(beneath), id, channel);
}
int destroy_id(const rdma_cm_functions* beneath, rdma_cm_id* id) {
  return cm::destroy_id(stock(beneath), id);
}
void destroy_ep(const rdma_cm_functions* beneath, rdma_cm_id* id) {
  cm::destroy_ep(stock(beneath), id);
}

}  // namespace

constinit const cm::Layer cm::layer{
    .qp_is_protected = qp_is_protected,
    .qp_has_left = qp_has_left,
    .device_is_masked = device_is_masked,
    .on_peer_gone = on_peer_gone,
};

const rdma_cm_stack_ops shift_cm_stack_ops = {
    .get_cm_event = get_cm_event,
    .ack_cm_event = ack_cm_event,
    .disconnect = disconnect,
    .migrate_id = migrate_id,
    .destroy_id = destroy_id,
    .destroy_ep = destroy_ep,
};
