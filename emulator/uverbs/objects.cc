// Events of objects, and the handle table.
#include "uverbs/objects.h"

#include <rdma/ib_user_verbs.h>

#include <algorithm>

namespace cxemu {

bool async_event_push(EventPipe& pipe, ibv_event_type type, uint64_t element) {
  ib_uverbs_async_event_desc record{};
  record.element = element;
  record.event_type = type;
  return pipe.push(&record, sizeof record);
}

void CqObject::completion(uint64_t cq_user_handle, int) {
  ib_uverbs_comp_event_desc record{};
  record.cq_handle = cq_user_handle;
  if (channel && channel->push(&record, sizeof record)) ++completions;
}

void CqObject::async_event(ibv_event_type event_type, uint64_t element) {
  if (async_event_push(*async, event_type, element)) ++async_events;
}

void SrqObject::async_event(ibv_event_type event_type, uint64_t element) {
  if (async_event_push(*async, event_type, element)) ++async_events;
}

void QpObject::async_event(ibv_event_type event_type, uint64_t element) {
  if (async_event_push(*async, event_type, element)) ++async_events;
}

uint32_t HandleTable::add(std::unique_ptr<Object> object) {
  // The lowest free number, as in the kernel.
  size_t handle = first_free_;
  while (handle < objects_.size() && objects_[handle]) ++handle;
  if (handle == objects_.size()) objects_.emplace_back();
  objects_[handle] = std::move(object);
  first_free_ = handle + 1;
  ++count_;
  return static_cast<uint32_t>(handle);
}

void HandleTable::remove(uint32_t handle) {
  objects_[handle].reset();
  first_free_ = std::min<size_t>(first_free_, handle);
  --count_;
}

void HandleTable::remove_all(ObjectType type) {
  for (size_t handle = 0; handle < objects_.size(); ++handle)
    if (objects_[handle] && objects_[handle]->type == type) remove(static_cast<uint32_t>(handle));
}

}  // namespace cxemu
