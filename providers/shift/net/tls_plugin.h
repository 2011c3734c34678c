// The C interface of libshift-tls.so, which has the layer speak TLS by the system's OpenSSL. The
// layer opens the library only when a setting asks for TLS. No call waits, and none touches a
// socket: bytes go in and come out.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHIFT_TLS_FILE "libshift-tls.so"
#define SHIFT_TLS_SYMBOL "shift_tls_get"
#define SHIFT_TLS_VERSION 1

struct shift_tls; /* one connection, as a client */

struct shift_tls_interface {
  uint32_t version; /* SHIFT_TLS_VERSION; all else may differ with another one */
  /* Makes a connection to `host`, a name or a numeric address, whose certificate must be of that
   * name and signed by an authority of `ca_file` or, without it, of the system. Returns NULL, with
   * the reason in `error`, when it cannot. */
  struct shift_tls* (*open)(const char* host, const char* ca_file, char* error, size_t error_size);
  void (*close)(struct shift_tls* tls);
  /* Takes bytes that came from the server. Returns 0, or -1. */
  int (*feed)(struct shift_tls* tls, const void* bytes, size_t size);
  /* Gives the bytes that are to go to the server; 0: none. */
  size_t (*take)(struct shift_tls* tls, void* bytes, size_t size);
  /* Goes on with the handshake and decrypts. Returns the number of bytes, 0 when more must be fed
   * first, or -1 when the connection is over. */
  long (*read)(struct shift_tls* tls, void* bytes, size_t size);
  /* Encrypts all of the bytes, after the handshake. Returns 0, or -1. */
  int (*write)(struct shift_tls* tls, const void* bytes, size_t size);
  /* Whether the handshake is over and the server has proved who it is. */
  int (*is_up)(const struct shift_tls* tls);
  /* Why a call has returned -1. */
  const char* (*error)(const struct shift_tls* tls);
};

/* The only symbol of the library. */
const struct shift_tls_interface* shift_tls_get(void);

#ifdef __cplusplus
}
#endif
