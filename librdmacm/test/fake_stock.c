// A stock librdmacm whose events the test chooses.
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT struct rdma_cm_event* fake_events;  // the next event; fake_left counts those left
EXPORT int fake_left;
EXPORT int fake_acknowledged;

EXPORT int rdma_get_cm_event(struct rdma_event_channel* channel, struct rdma_cm_event** event) {
  (void)channel;
  if (fake_left == 0) {
    errno = EAGAIN;
    return -1;
  }
  fake_left--;
  *event = fake_events++;
  return 0;
}

EXPORT int rdma_ack_cm_event(struct rdma_cm_event* event) {
  (void)event;
  fake_acknowledged++;
  return 0;
}

EXPORT int rdma_destroy_id(struct rdma_cm_id* id) {
  (void)id;
  return 0;
}

EXPORT void rdma_destroy_ep(struct rdma_cm_id* id) {
  (void)id;
}

// Calls itself through the front, as a program does.
static int await_event(struct rdma_cm_id* id) {
  const int error = rdma_get_cm_event(id->channel, &id->event);
  return error == 0 ? id->event->status : -1;  // no tail call: the front looks at who called it
}

// Behaves as for an id that has no channel of the program's.
EXPORT int rdma_connect(struct rdma_cm_id* id, struct rdma_conn_param* parameters) {
  (void)parameters;
  return await_event(id);
}

EXPORT int fake_disconnect_error;  // an errno
EXPORT int fake_disconnect_waits;
EXPORT int rdma_disconnect(struct rdma_cm_id* id) {
  if (fake_disconnect_error != 0) {
    errno = fake_disconnect_error;
    return -1;
  }
  if (!fake_disconnect_waits) return 0;
  const int error = await_event(id);
  return error;
}

EXPORT int rdma_migrate_id(struct rdma_cm_id* id, struct rdma_event_channel* channel) {
  id->channel = channel;
  return 0;
}

// The front does not define this function, so it is found here.
EXPORT int rdma_listen(struct rdma_cm_id* id, int backlog) {
  (void)id;
  return backlog;
}
