// Debian's redis-server for tests, with a folder and a port of its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace shift::net::test {

// A folder that goes with its files.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Runs a command of the shell, whose output is in a failure's message. Returns its standard output.
std::string shell(const std::string& command);

class RealRedis {
 public:
  // Whether the machine has the programs; otherwise the tests are skipped.
  static bool is_here();

  // `options` are further ones of the command line. With `tls` the port speaks TLS only.
  explicit RealRedis(std::vector<std::string> options = {}, bool tls = false);
  ~RealRedis() { stop(); }
  RealRedis(const RealRedis&) = delete;
  RealRedis& operator=(const RealRedis&) = delete;

  uint16_t port() const { return port_; }
  void start();  // with nothing in it
  void stop();   // like a crash
  void signal(int number);
  // Runs redis-cli, without its own options.
  std::string ask(const std::string& words) const;

 private:
  TemporaryFolder folder_;
  std::vector<std::string> options_;
  bool tls_;
  uint16_t port_ = 0;
  pid_t process_ = 0;
};

}  // namespace shift::net::test
