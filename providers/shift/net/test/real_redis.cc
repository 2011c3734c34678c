// Starts and stops a redis-server.
#include "net/test/real_redis.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "net/test/redis_fixture.h"
#include "util/unique_fd.h"

namespace shift::net::test {
namespace {

// A port of the loopback address that nobody uses now.
uint16_t free_port() {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  struct sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<struct sockaddr*>(&address);
  EXPECT_EQ(bind(fd.get(), generic, size), 0);
  EXPECT_EQ(getsockname(fd.get(), generic, &size), 0);
  return ntohs(address.sin_port);
}

bool is_listening(uint16_t port) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  struct sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return connect(fd.get(), reinterpret_cast<struct sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string name = ::testing::TempDir() + "shift_redis_XXXXXX";
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string shell(const std::string& command) {
  FILE* const output = popen((command + " 2>&1").c_str(), "re");
  std::string text;
  char chunk[4096];
  while (const size_t n = fread(chunk, 1, sizeof chunk, output)) text.append(chunk, n);
  EXPECT_EQ(pclose(output), 0) << command << "\n" << text;
  return text;
}

bool RealRedis::is_here() {
  return system("command -v redis-server redis-cli openssl >/dev/null") == 0;
}

RealRedis::RealRedis(std::vector<std::string> options, bool tls)
    : options_(std::move(options)), tls_(tls), port_(free_port()) {
  start();
}

void RealRedis::start() {
  std::vector<std::string> words = {"redis-server",
                                    "--bind",
                                    "127.0.0.1",
                                    "--dir",
                                    folder_.path(),
                                    "--save",
                                    "",
                                    "--appendonly",
                                    "no",
                                    "--daemonize",
                                    "no",
                                    "--logfile",
                                    folder_.file("log"),
                                    "--port",
                                    tls_ ? "0" : std::to_string(port_)};
  if (tls_) words.insert(words.end(), {"--tls-port", std::to_string(port_)});
  words.insert(words.end(), options_.begin(), options_.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  process_ = fork();
  if (process_ == 0) {
    const int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++) dup2(null, fd);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  wait_for([&] {
    EXPECT_EQ(waitpid(process_, nullptr, WNOHANG), 0) << "redis-server has ended";
    return ::testing::Test::HasFailure() || is_listening(port_);
  });
}

void RealRedis::stop() {
  if (process_ <= 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = 0;
}

void RealRedis::signal(int number) {
  EXPECT_EQ(kill(process_, number), 0);
}

std::string RealRedis::ask(const std::string& words) const {
  return shell("redis-cli -h 127.0.0.1 -p " + std::to_string(port_) + " " + words);
}

}  // namespace shift::net::test
