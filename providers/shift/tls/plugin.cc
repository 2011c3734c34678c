// libshift-tls.so: TLS for the layer's connection to a store, by the system's OpenSSL. It is a
// library of its own, so that no program needs OpenSSL to start, and it fails closed: no connection
// comes up unless the server has proved that it is who it is called.
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "net/tls_plugin.h"

struct shift_tls {
  SSL* ssl = nullptr;
  BIO* from_server = nullptr;  // of the SSL, as the next one
  BIO* to_server = nullptr;
  bool is_up = false;
  char error[256] = "";

  ~shift_tls() { SSL_free(ssl); }
};

namespace {

// OpenSSL takes its tables down when the program exits, while the layer's thread still runs. From
// then on no call reaches it.
constinit std::mutex exit_mutex;
bool is_exiting = false;

void stop_calls() {
  std::lock_guard lock(exit_mutex);
  is_exiting = true;
}

template <typename F, typename R>
R guarded(const F& call, R otherwise) {
  std::lock_guard lock(exit_mutex);
  return is_exiting ? otherwise : call();
}

void keep_error(char* out, size_t size, const char* what) {
  const unsigned long code = ERR_peek_error();
  char long_text[200] = "";
  ERR_error_string_n(code, long_text, sizeof long_text);
  // An error of the system, such as a file that is not there, has the long text only.
  const char* const reason = ERR_reason_error_string(code);
  std::snprintf(out, size, "%s%s%s", what, code != 0 ? ": " : "",
                code == 0           ? ""
                : reason != nullptr ? reason
                                    : long_text);
  ERR_clear_error();
}

bool is_numeric(const char* host) {
  ASN1_OCTET_STRING* const ip = a2i_IPADDRESS(host);
  ASN1_OCTET_STRING_free(ip);
  ERR_clear_error();
  return ip != nullptr;
}

// Says what the certificate must be, and whom to believe.
const char* set_up(SSL_CTX* context, SSL* ssl, const char* host, const char* ca_file) {
  const bool is_trust_set = ca_file != nullptr
                                ? SSL_CTX_load_verify_locations(context, ca_file, nullptr) == 1
                                : SSL_CTX_set_default_verify_paths(context) == 1;
  if (!is_trust_set) return "the file of authorities cannot be used";
  SSL_set_verify(ssl, SSL_VERIFY_PEER, nullptr);
  X509_VERIFY_PARAM* const wanted = SSL_get0_param(ssl);
  if (is_numeric(host))
    return X509_VERIFY_PARAM_set1_ip_asc(wanted, host) == 1 ? nullptr : "the address is none";
  X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  const bool is_named =
      SSL_set_tlsext_host_name(ssl, host) == 1 && X509_VERIFY_PARAM_set1_host(wanted, host, 0) == 1;
  return is_named ? nullptr : "the name is none";
}

shift_tls* open_connection(const char* host, const char* ca_file, char* error, size_t error_size) {
  ERR_clear_error();
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()),
                                                             SSL_CTX_free);
  auto tls = std::unique_ptr<shift_tls>(new (std::nothrow) shift_tls);
  if (context && tls) {
    SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
    SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
    tls->ssl = SSL_new(context.get());
    tls->from_server = BIO_new(BIO_s_mem());
    tls->to_server = BIO_new(BIO_s_mem());
  }
  if (!context || !tls || tls->ssl == nullptr || !tls->from_server || !tls->to_server) {
    keep_error(error, error_size, "out of memory");
    return nullptr;
  }
  BIO_set_mem_eof_return(tls->from_server, -1);  // an empty buffer is no end
  SSL_set_bio(tls->ssl, tls->from_server, tls->to_server);
  SSL_set_connect_state(tls->ssl);
  if (const char* const problem = set_up(context.get(), tls->ssl, host, ca_file)) {
    keep_error(error, error_size, problem);
    return nullptr;
  }
  return tls.release();
}

void close_connection(shift_tls* tls) {
  // Memory that cannot be given back at the exit is no loss.
  guarded([&] { return delete tls, 0; }, 0);
}

int feed(shift_tls* tls, const void* bytes, size_t size) {
  if (size == 0) return 0;
  const bool is_good =
      BIO_write(tls->from_server, bytes, static_cast<int>(size)) == static_cast<int>(size);
  if (!is_good) keep_error(tls->error, sizeof tls->error, "out of memory");
  return is_good ? 0 : -1;
}

size_t take(shift_tls* tls, void* bytes, size_t size) {
  return static_cast<size_t>(std::max(BIO_read(tls->to_server, bytes, static_cast<int>(size)), 0));
}

// Why the certificate was refused says more than that the handshake failed.
void keep_failure(shift_tls* tls) {
  const long verified = SSL_get_verify_result(tls->ssl);
  if (verified == X509_V_OK) return keep_error(tls->error, sizeof tls->error, "connection lost");
  keep_error(tls->error, sizeof tls->error, X509_verify_cert_error_string(verified));
}

long read_plain(shift_tls* tls, void* bytes, size_t size) {
  ERR_clear_error();
  const int n = SSL_read(tls->ssl, bytes, static_cast<int>(size));
  if (SSL_is_init_finished(tls->ssl) != 0 && SSL_get_verify_result(tls->ssl) == X509_V_OK)
    tls->is_up = true;
  if (n > 0) return n;
  if (SSL_get_error(tls->ssl, n) == SSL_ERROR_WANT_READ) return 0;
  keep_failure(tls);
  return -1;
}

int write_plain(shift_tls* tls, const void* bytes, size_t size) {
  ERR_clear_error();
  if (size == 0) return 0;
  const bool is_good =
      tls->is_up && SSL_write(tls->ssl, bytes, static_cast<int>(size)) == static_cast<int>(size);
  if (!is_good) keep_failure(tls);
  return is_good ? 0 : -1;
}

constexpr shift_tls_interface kInterface = {
    SHIFT_TLS_VERSION,
    [](const char* host, const char* ca_file, char* error, size_t error_size) {
      return guarded([&] { return open_connection(host, ca_file, error, error_size); },
                     static_cast<shift_tls*>(nullptr));
    },
    close_connection,
    [](shift_tls* tls, const void* bytes, size_t size) {
      return guarded([&] { return feed(tls, bytes, size); }, -1);
    },
    [](shift_tls* tls, void* bytes, size_t size) {
      return guarded([&] { return take(tls, bytes, size); }, size_t{0});
    },
    [](shift_tls* tls, void* bytes, size_t size) {
      return guarded([&] { return read_plain(tls, bytes, size); }, -1L);
    },
    [](shift_tls* tls, const void* bytes, size_t size) {
      return guarded([&] { return write_plain(tls, bytes, size); }, -1);
    },
    [](const shift_tls* tls) { return tls->is_up ? 1 : 0; },
    [](const shift_tls* tls) -> const char* { return tls->error; },
};

}  // namespace

extern "C" [[gnu::visibility("default")]] const shift_tls_interface* shift_tls_get(void) {
  // A program that comes to use OpenSSL later finds it set up as it would have been. Only the
  // handler at its exit is left out, so that nothing ends under the layer's thread. When the
  // program was first, the handler below, which is newer, runs before OpenSSL's.
  static const bool is_ready = [] {
    // A fork child must not find the mutex locked by a thread that it does not have.
    const auto lock = [] { exit_mutex.lock(); };
    const auto unlock = [] { exit_mutex.unlock(); };
    return OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr) == 1 &&
           pthread_atfork(lock, unlock, unlock) == 0 && std::atexit(stop_calls) == 0;
  }();
  return is_ready ? &kInterface : nullptr;
}
