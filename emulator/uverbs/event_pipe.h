// The pipe behind a completion channel or an asynchronous event file. The application owns the read
// end as a plain file descriptor: it polls it, makes it non-blocking, or closes it at any time.
//
// Not thread-safe: used with the engine's lock held. The application's reads need no lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cxemu {

class EventPipe {
 public:
  // Returns 0 or an errno. The application owns *reader_fd.
  static int create(std::unique_ptr<EventPipe>* out, int* reader_fd);
  ~EventPipe();
  EventPipe(const EventPipe&) = delete;
  EventPipe& operator=(const EventPipe&) = delete;

  // Adds a record and never blocks. Returns false when the pipe is full and the event is lost.
  bool push(const void* record, size_t size);
  // The device is gone: no more events come, and poll(2) says so for ever once all are read.
  void hang_up();
  // Takes out the unread records of `size` bytes whose first 8 bytes are `key`; returns how many.
  // When an object is destroyed, only the events that the application has read are reported to it:
  // libibverbs waits until that many are acknowledged.
  uint32_t purge(size_t size, uint64_t key);

 private:
  EventPipe() = default;

  // Our own copy of the read end: a pipe without readers would raise SIGPIPE in the application.
  int reader_ = -1;
  int writer_ = -1;
  std::vector<uint64_t> lost_;  // keys of unread records that could not be put back
};

}  // namespace cxemu
