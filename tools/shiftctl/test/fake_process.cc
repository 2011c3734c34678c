// A process as shiftctl sees one: it writes a state file, holds its lock, and takes orders at its
// socket. It obeys them by changing its file, as far as its options let it.
//
// The words that it reads from its input, a line each: "fault QPN" (it says when that is written),
// "slow" and "stubborn" (how it carries orders out from now on; it says the word), "end" (in
// order), "crash".
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <thread>

#include "fake.h"
#include "state/directory.h"

namespace {

using shift::ctl::test::Fake;
using shift::state::GroupRecord;

struct Options {
  std::string base, problem, device_problem, process_problem;
  std::vector<std::string> nics{"mlx5_0", "mlx5_1"};
  unsigned qps = 2, ready = 2, state = 1, stock = 0, down = 0, late = 0, switches = 0;
  bool is_deaf = false, is_stubborn = false, is_dead = false, is_searching = false;
};

class Process {
 public:
  explicit Process(const Options& options) : options_(options), uid_(::geteuid()) {
    fake_ = Fake::with(static_cast<uint32_t>(::getpid()), options.nics);
    auto& device = fake_.devices.front();
    device.up = static_cast<uint8_t>(device.up & ~options.down);
    device.late = static_cast<uint8_t>(options.late);
    device.stock_qps = options.stock;
    shift::state::text_set(device.problem, options.device_problem);
    shift::state::text_set(fake_.process.problem, options.process_problem);
    for (unsigned i = 0; i < options.qps; i++) {
      auto& group = fake_.add_qp(0x100 + i, static_cast<uint8_t>(options.ready),
                                 static_cast<shift::fsm::State>(options.state));
      shift::state::text_set(group.problem, options.problem);
      if (options.is_searching) group.peer_members = 0;
    }
    auto& counters = fake_.process.counters;
    counters.switches[1] = options.switches;
    counters.pauses[3] = options.switches;
    counters.pause_us = uint64_t{options.switches} * 4120;
    name_ = std::to_string(::getpid()) + "-fake";
    file_ = shift::ctl::test::file_write(options.base, uid_, name_ + shift::state::kStateEnd,
                                         fake_.bytes());
    if (!options.is_dead && !shift::ctl::test::lock_take(file_.get())) std::abort();
    if (!options.is_deaf) socket_open();
  }

  int run() {
    std::cout << ::getpid() << std::endl;
    for (;;) {
      pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {socket_.get(), POLLIN, 0}};
      ::poll(fds, 2, -1);
      if ((fds[1].revents & POLLIN) != 0) order_take();
      if (fds[0].revents == 0) continue;
      std::string line;
      if (!std::getline(std::cin, line) || line == "crash") return 0;
      if (line == "end") {
        fake_.process.is_closed = 1;
        write();
        return 0;
      }
      std::istringstream words(line);
      std::string word;
      words >> word;
      if (word == "fault") fault_add(words);
      if (word == "slow" || word == "stubborn") manner_change(word);
    }
  }

 private:
  void socket_open() {
    socket_ = shift::UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const std::string path =
        shift::state::user_directory(options_.base, uid_) + "/" + name_ + shift::state::kSocketEnd;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) std::abort();
    std::memcpy(address.sun_path, path.data(), path.size());
    if (::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      std::abort();
  }

  void write() {
    const std::string bytes = fake_.bytes();
    if (::pwrite(file_.get(), bytes.data(), bytes.size(), 0) < 0) std::abort();
  }

  void manner_change(const std::string& word) {
    if (word == "slow")
      pause_ = std::chrono::milliseconds(200);
    else
      options_.is_stubborn = true;
    std::cout << word << std::endl;
  }

  void fault_add(std::istream& words) {
    uint32_t qpn = 0;
    words >> std::hex >> qpn;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    fake_.add_fault(qpn, std::chrono::duration_cast<std::chrono::nanoseconds>(now).count(), "test");
    write();
    std::cout << "written" << std::endl;
  }

  void order_take() {
    char text[256];
    const ssize_t size = ::recv(socket_.get(), text, sizeof text, 0);
    if (size < 0) return;
    const std::string order(text, static_cast<size_t>(size));
    std::cout << order << std::endl;
    if (options_.is_stubborn) return;
    std::this_thread::sleep_for(pause_);
    std::istringstream words(order);
    std::string word;
    uint32_t qpn = 0;
    words >> word >> std::hex >> qpn;
    if (word == "look")
      look();
    else
      for (auto& group : fake_.groups)
        if (group.qpn == qpn && word == "move")
          leave(group, group.member);
        else if (group.qpn == qpn)
          group.avoided = group.member = 0;
    write();
  }

  void look() {
    std::string problem;
    const auto drained = shift::state::drained_read(options_.base, uid_, problem);
    auto& device = fake_.devices.front();
    device.drained = 0;
    for (unsigned i = 0; i < device.members; i++)
      if (drained.contains(std::string(device.name(i))))
        device.drained = static_cast<uint8_t>(device.drained | 1u << i);
    for (auto& group : fake_.groups) {
      if ((device.drained >> group.member & 1) != 0 && group.ready_members != 0)
        leave(group, group.member);
      else if (device.drained == 0)
        group.avoided = group.member = 0;
    }
  }

  void leave(GroupRecord& group, uint8_t from) {
    group.avoided = static_cast<uint8_t>(1u << from);
    group.member = from == 0 ? 1 : 0;
    group.epoch++;
  }

  Options options_;
  uid_t uid_;
  std::string name_;
  std::chrono::milliseconds pause_{0};  // before it carries an order out
  Fake fake_;
  shift::UniqueFd file_, socket_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A process as shiftctl sees one");
  Options options;
  app.add_option("base", options.base)->required();
  app.add_option("--nics", options.nics)->delimiter(',');
  app.add_option("--qps", options.qps);
  app.add_option("--ready", options.ready);
  app.add_option("--state", options.state, "a number of fsm::State");
  app.add_option("--stock", options.stock);
  app.add_option("--down", options.down, "a mask of NICs");
  app.add_option("--late", options.late, "a mask of NICs");
  app.add_option("--switches", options.switches);
  app.add_option("--problem", options.problem);
  app.add_option("--device-problem", options.device_problem);
  app.add_option("--process-problem", options.process_problem);
  app.add_flag("--deaf", options.is_deaf, "without a socket");
  app.add_flag("--stubborn", options.is_stubborn, "hears orders, and does nothing");
  app.add_flag("--dead", options.is_dead, "without the lock");
  app.add_flag("--searching", options.is_searching, "the peer is looked for");
  CLI11_PARSE(app, argc, argv);
  return Process(options).run();
}
