// Contexts: opening, closing, channels.
#include "uverbs/context.h"

#include <algorithm>
#include <mutex>

#include "uverbs/command_turn.h"

namespace cxemu {

std::unique_ptr<Context> Context::open(Engine& engine, Fabric& fabric, FabricNic* fabric_nic,
                                       ContextObserver* observer, uint8_t* pages) {
  std::unique_ptr<Context> context(new Context(engine, fabric, fabric_nic, observer, pages));
  {
    std::lock_guard lock(engine.lock());
    context->nic_ = engine.nic_open(fabric_nic, context.get());
  }
  if (!context->nic_) return nullptr;
  return context;
}

Context::~Context() {
  // What get_context had from the firmware goes back to it, so closing waits like a command. It
  // fails only where nothing was started; the lock is taken in any case.
  CommandTurn turn(*this);
  (void)turn.take(kWorksWhenDead, false);
  // Errors no longer matter: the Nic frees whatever is left.
  objects_.each<QpObject>([this](QpObject* object) { (void)nic_->qp_destroy(object->qp); });
  objects_.remove_all(ObjectType::kQp);
  objects_.each<SrqObject>([this](SrqObject* object) { (void)nic_->srq_destroy(object->srq); });
  objects_.remove_all(ObjectType::kSrq);
  objects_.each<CqObject>([this](CqObject* object) { (void)nic_->cq_destroy(object->cq); });
  objects_.remove_all(ObjectType::kCq);
  // Windows come first: a region with bound windows cannot be removed.
  objects_.each<MwObject>([this](MwObject* object) { (void)nic_->mw_deallocate(object->key); });
  objects_.remove_all(ObjectType::kMw);
  objects_.each<MrObject>([this](MrObject* object) { (void)nic_->mr_deregister(object->key); });
  objects_.remove_all(ObjectType::kMr);
  objects_.remove_all(ObjectType::kDm);
  objects_.remove_all(ObjectType::kUar);
  objects_.remove_all(ObjectType::kAh);
  objects_.remove_all(ObjectType::kXrcd);
  objects_.remove_all(ObjectType::kPd);
  nic_.reset();
}

void Context::async_event(ibv_event_type type, uint64_t element) {
  if (async_) (void)async_event_push(*async_, type, element);
  for (const auto& [fd, pipe] : more_async_) (void)async_event_push(*pipe, type, element);
  if (type != IBV_EVENT_DEVICE_FATAL) return;
  // The kernel does this when a driver detaches from its device. Event files stay open.
  for (const auto& [fd, pipe] : channels_) pipe->hang_up();
}

std::shared_ptr<EventPipe> Context::channel_find(int fd) const {
  const auto it = channels_.find(fd);
  return it == channels_.end() ? nullptr : it->second;
}

int Context::channel_create(int* fd) {
  std::unique_ptr<EventPipe> pipe;
  if (const int error = EventPipe::create(&pipe, fd)) return error;
  channels_[*fd] = std::move(pipe);
  if (observer_ != nullptr) observer_->channel_created(*fd);
  return 0;
}

int Context::start(int* async_fd) {
  std::unique_ptr<EventPipe> pipe;
  if (const int error = EventPipe::create(&pipe, async_fd)) return error;
  async_ = std::move(pipe);
  async_fd_ = *async_fd;
  // From now on the clocks run at the same speed, so one update of their offset is enough.
  pages_.clock_update();
  return 0;
}

int Context::async_add(int* async_fd) {
  std::unique_ptr<EventPipe> pipe;
  if (const int error = EventPipe::create(&pipe, async_fd)) return error;
  more_async_[*async_fd] = std::move(pipe);
  return 0;
}

Context::AsyncChoice::AsyncChoice(Context& context, int async_fd)
    : context_(context), usual_(context.async_), first_(async_fd == context.async_fd_) {
  const auto chosen = context.more_async_.find(async_fd);
  known_ = chosen != context.more_async_.end();
  if (known_) context.async_ = chosen->second;
}

bool Context::register_page_take(uint32_t* index) {
  const auto free = std::find(register_pages_.begin(), register_pages_.end(), false);
  *index = static_cast<uint32_t>(free - register_pages_.begin());
  if (*index == kRegisterPagesMax) return false;
  if (free == register_pages_.end()) register_pages_.push_back(false);
  register_pages_[*index] = true;
  return true;
}

UarObject::~UarObject() {
  context->register_page_free(index);
}

}  // namespace cxemu
