// One open device file: what the kernel keeps for one /dev/infiniband/uverbsN descriptor.
//
// Everything here runs with the engine's lock held, unless a comment says otherwise.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "fabric/fabric.h"
#include "nic/nic.h"
#include "uverbs/device_pages.h"
#include "uverbs/event_pipe.h"
#include "uverbs/objects.h"

namespace cxemu {

// Tells the owner of the descriptors (host/) about objects. Called with the engine's lock held.
class ContextObserver {
 public:
  // From now on the application owns this descriptor.
  virtual void channel_created(int fd) = 0;
  // libibverbs passes the address of its ibv_cq or ibv_cq_ex as the user handle.
  virtual void cq_created(uint64_t user_handle) = 0;
  virtual void cq_destroyed(uint64_t user_handle) = 0;

 protected:
  ~ContextObserver() = default;
};

class Context final : public EventSink {
 public:
  // `nic` must have been opened with this object as its port_sink: see open(). Returns nullptr when
  // the NIC is dead. Takes the engine's lock itself. `pages`: what the file's mapping shows,
  // device_pages_size() bytes; it must outlive the context.
  static std::unique_ptr<Context> open(Engine&, Fabric&, FabricNic*, ContextObserver*,
                                       uint8_t* pages);
  // Destroys all remaining objects, as the kernel does when the file is closed. Takes the lock
  // itself.
  ~Context();

  // EventSink: port and device events.
  void completion(uint64_t, int) override {}
  void async_event(ibv_event_type type, uint64_t element) override;

  // Channels are descriptors, not handles. The application has closed one, which gets no more
  // events.
  void channel_closed(int fd) { channels_.erase(fd); }
  // Returns nullptr if the descriptor is not a channel of this context.
  std::shared_ptr<EventPipe> channel_find(int fd) const;
  int channel_create(int* fd);

  Engine& engine() const { return engine_; }
  Nic& nic() const { return *nic_; }
  FabricNic& fabric_nic() const { return *fabric_nic_; }
  const Fabric& fabric() const { return fabric_; }
  ContextObserver* observer() const { return observer_; }
  HandleTable& objects() { return objects_; }

  // The first command must be get_context, and no later one may be.
  bool started() const { return async_ != nullptr; }
  int start(int* async_fd);
  const std::shared_ptr<EventPipe>& async() const { return async_; }
  uint32_t pd_number_next() { return ++pd_last_; }
  uint32_t xrcd_number_next() { return ++xrcd_last_; }
  // Opens another file that gets the port's events, and those of objects created for it.
  int async_add(int* async_fd);
  // While this object lives, async() is the file with the given descriptor.
  class AsyncChoice {
   public:
    AsyncChoice(Context&, int async_fd);
    ~AsyncChoice() { context_.async_ = std::move(usual_); }
    AsyncChoice(const AsyncChoice&) = delete;
    AsyncChoice& operator=(const AsyncChoice&) = delete;
    bool is_first() const { return first_; }
    bool is_known() const { return known_; }

   private:
    Context& context_;
    std::shared_ptr<EventPipe> usual_;
    bool first_, known_;
  };

  const DevicePages& pages() const { return pages_; }
  bool register_page_take(uint32_t* index);
  void register_page_free(uint32_t index) { register_pages_[index] = false; }

  // In a child of fork() the NIC remains the parent's, and only what needs no NIC still works.
  void orphan() { orphaned_ = true; }
  bool orphaned() const { return orphaned_; }

 private:
  Context(Engine& engine, Fabric& fabric, FabricNic* nic, ContextObserver* observer, uint8_t* pages)
      : engine_(engine), fabric_(fabric), fabric_nic_(nic), observer_(observer), pages_(pages) {}

  Engine& engine_;
  Fabric& fabric_;
  FabricNic* const fabric_nic_;
  ContextObserver* const observer_;
  const DevicePages pages_;
  std::unique_ptr<Nic> nic_;
  std::shared_ptr<EventPipe> async_;
  int async_fd_ = -1;                                     // the descriptor of the first file
  std::map<int, std::shared_ptr<EventPipe>> more_async_;  // by descriptor
  std::map<int, std::shared_ptr<EventPipe>> channels_;
  HandleTable objects_;
  uint32_t pd_last_ = 0, xrcd_last_ = 0;
  std::vector<bool> register_pages_;
  bool orphaned_ = false;
};

}  // namespace cxemu
