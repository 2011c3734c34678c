// A TCP program for tests, one end of connections. It obeys lines on its standard input:
//   listen ADDRESS        prints "listening PORT"
//   connect ADDRESS PORT  begins to connect; "state" shows the result
//   accept                waits for a connection
//   state MS              prints "connected", or "pending" if it is not within MS milliseconds
//   send WORD, recv MS    prints what came, "nothing" or the error
//   local                 prints the connection's own address
//   interfaces ADDRESS    prints the interfaces that have it
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>

namespace {

int g_listener = -1, g_socket = -1;

sockaddr_in address_make(const std::string& text, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, text.c_str(), &address.sin_addr);
  return address;
}

void listen_on(const std::string& text) {
  g_listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = address_make(text, 0);
  socklen_t length = sizeof address;
  if (bind(g_listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(g_listener, 8) != 0 ||
      getsockname(g_listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    printf("error %s\n", strerror(errno));
    return;
  }
  printf("listening %d\n", ntohs(address.sin_port));
}

void connect_to(const std::string& text, int port) {
  if (g_socket >= 0) close(g_socket);
  g_socket = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  const sockaddr_in address = address_make(text, port);
  if (connect(g_socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
      errno == EINPROGRESS)
    printf("connecting\n");
  else
    printf("error %s\n", strerror(errno));
}

void state_show(int patience_ms) {
  pollfd wait{g_socket, POLLOUT, 0};
  if (poll(&wait, 1, patience_ms) == 0) {
    printf("pending\n");
    return;
  }
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(g_socket, SOL_SOCKET, SO_ERROR, &error, &length);
  printf("%s\n", error == 0 ? "connected" : strerror(error));
}

void receive(int patience_ms) {
  pollfd wait{g_socket, POLLIN, 0};
  char text[256];
  if (poll(&wait, 1, patience_ms) == 0) {
    printf("nothing\n");
    return;
  }
  const ssize_t length = recv(g_socket, text, sizeof text - 1, MSG_DONTWAIT);
  if (length > 0)
    printf("received %.*s\n", static_cast<int>(length), text);
  else
    printf("error %s\n", length == 0 ? "end" : strerror(errno));
}

void local_show() {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  getsockname(g_socket, reinterpret_cast<sockaddr*>(&address), &length);
  char text[INET_ADDRSTRLEN];
  printf("local %s\n", inet_ntop(AF_INET, &address.sin_addr, text, sizeof text));
}

void interfaces_show(const std::string& text) {
  in_addr wanted{};
  inet_pton(AF_INET, text.c_str(), &wanted);
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) {
    printf("error %s\n", strerror(errno));
    return;
  }
  std::string found = "on";
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    if (address->sin_addr.s_addr == wanted.s_addr) found += std::string(" ") + one->ifa_name;
  }
  freeifaddrs(all);
  printf("%s\n", found.c_str());
}

}  // namespace

int main() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  std::string verb, word;
  while (std::cin >> verb) {
    int number = 0;
    if (verb == "listen" && std::cin >> word) listen_on(word);
    if (verb == "connect" && std::cin >> word >> number) connect_to(word, number);
    if (verb == "accept") {
      if (g_socket >= 0) close(g_socket);
      g_socket = accept4(g_listener, nullptr, nullptr, SOCK_NONBLOCK);
      printf("accepted\n");
    }
    if (verb == "state" && std::cin >> number) state_show(number);
    if (verb == "send" && std::cin >> word)
      printf("%s\n", send(g_socket, word.data(), word.size(), MSG_NOSIGNAL) ==
                             static_cast<ssize_t>(word.size())
                         ? "sent"
                         : strerror(errno));
    if (verb == "recv" && std::cin >> number) receive(number);
    if (verb == "local") local_show();
    if (verb == "interfaces" && std::cin >> word) interfaces_show(word);
  }
  return 0;
}
