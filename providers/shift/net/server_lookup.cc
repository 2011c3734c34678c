// Asks the system for the addresses of a name.
#include "net/server_lookup.h"

#include <netdb.h>
#include <pthread.h>
#include <signal.h>

#include <cstring>
#include <exception>
#include <mutex>
#include <utility>

#include "util/log.h"

namespace shift::net {
namespace {

constexpr size_t kAddressesMax = 8;

std::vector<ServerAddress> ask(const std::string& host, uint16_t port, int flags) {
  struct addrinfo hints = {}, *list = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) return {};
  const std::unique_ptr<struct addrinfo, void (*)(struct addrinfo*)> owned(list, freeaddrinfo);
  std::vector<ServerAddress> found;
  // The management network's IPv4 address of this host is told to peers, so IPv4 is better.
  for (const int family : {AF_INET, AF_INET6}) {
    for (const struct addrinfo* one = list; one != nullptr; one = one->ai_next) {
      ServerAddress address;
      if (one->ai_family != family || one->ai_addrlen > sizeof address.address ||
          found.size() == kAddressesMax)
        continue;
      std::memcpy(&address.address, one->ai_addr, one->ai_addrlen);
      address.size = one->ai_addrlen;
      found.push_back(address);
    }
  }
  return found;
}

}  // namespace

struct ServerLookup::Job {
  const std::string host;
  const uint16_t port;
  ServerLookup* owner;  // the loop's; nullptr: nobody wants the answer
  Callback callback;    // the loop's
  Reactor* reactor;     // guarded by the mutex; nullptr: the loop may be gone
  std::mutex mutex{};

  static void deliver(const std::shared_ptr<Job>& job, std::vector<ServerAddress> addresses);
};

// Any thread may call it.
void ServerLookup::Job::deliver(const std::shared_ptr<Job>& job,
                                std::vector<ServerAddress> addresses) {
  std::lock_guard lock(job->mutex);
  if (job->reactor == nullptr) return;
  const bool queued = job->reactor->call_soon([job, found = std::move(addresses)]() mutable {
    if (job->owner == nullptr) return;
    job->owner->job_.reset();
    job->owner = nullptr;
    job->callback(std::move(found));
  });
  if (!queued) SHIFT_DEBUG("the address of %s came after the end", job->host.c_str());
}

void* ServerLookup::thread_main(void* argument) {
  const std::unique_ptr<std::shared_ptr<Job>> job(static_cast<std::shared_ptr<Job>*>(argument));
  try {
    Job::deliver(*job, ask((*job)->host, (*job)->port, 0));
  } catch (const std::exception&) {
    // Without memory there is no answer; who asked has bounded its time.
  }
  return nullptr;
}

void ServerLookup::start(const std::string& host, uint16_t port, Callback callback) {
  if (job_) {
    job_->callback = std::move(callback);
    return;
  }
  job_.reset(new Job{host, port, this, std::move(callback), &reactor_});
  if (auto numeric = ask(host, port, AI_NUMERICHOST); !numeric.empty())
    return Job::deliver(job_, std::move(numeric));
  auto argument = std::make_unique<std::shared_ptr<Job>>(job_);
  // The program's signals go to the program's threads.
  sigset_t all, old;
  sigfillset(&all);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&all, fault);
  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const int error = pthread_create(&thread, &detached, thread_main, argument.get());
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  pthread_attr_destroy(&detached);
  if (error != 0) return Job::deliver(job_, {});
  (void)argument.release();
}

void ServerLookup::cancel() {
  if (!job_) return;
  const std::shared_ptr<Job> job = std::move(job_);
  job->owner = nullptr;
  job->callback = nullptr;
  std::lock_guard lock(job->mutex);
  job->reactor = nullptr;
}

}  // namespace shift::net
