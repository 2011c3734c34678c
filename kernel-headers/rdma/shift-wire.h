/* SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB) */
/*
 * What processes with SHIFT say to each other, as bytes: wire version 5.
 *
 * This header is for those who read or write these messages in another language, or look at a
 * capture. Nothing is built from it; a test compares it with the codec. What the messages are for,
 * and who sends them when, is in docs/protocol.md and docs/rendezvous.md.
 *
 * Transport. Messages go over TCP, to the port SHIFT_WIRE_PORT (SHIFT_PORT) or that of a job key,
 * at an IPv4 address that a GID holds. GidQuery and GidAnswer alone go over UDP, to that port and
 * back, one in each datagram. A TCP stream is frames without anything between them. A frame is
 * struct shift_wire_header and a body, whose layout follows from the type.
 *
 * Layout. All numbers are unsigned and little-endian, and nothing is padded. GIDs and addresses are
 * bytes in network order. The comment of each field begins with its offset in the struct. That of a
 * message is the body of a frame, whose byte 0 is byte 20 of the frame. A message with a list has
 * up to three parts: struct X ends with the number of items, struct X_item follows that many times,
 * and then struct X_end, if there is one.
 *
 * Strictness. A frame is exactly one well-formed message. A receiver that finds another magic,
 * version or flag, an unknown type, a length out of bounds, a body that is too short or too long
 * for its message, too many items, or a byte that should be 0 or 1 and is not, closes the
 * connection and takes nothing of the frame; a datagram it drops. Enumerations are open, since a
 * newer build may say more: an unknown value is well-formed.
 *
 * Versions. The version changes when something that exists is laid out anew. Only magic and
 * version are then where they are now, and processes of different versions do not talk to each
 * other. A new type does not change the version. It is sent only to a peer whose Bind says, with a
 * flag, that it knows the type, so the two ends may be of different builds.
 *
 * Handshake. The dialer of a connection says Hello, the other end HelloReply, and if that says yes,
 * the dialer says Confirm. From then on the connection belongs to a channel, which is all
 * connections between two processes. Each message of a channel goes over all of them.
 *
 * Keys. Where processes have a job key, all frames of a channel are sealed (struct
 * shift_wire_seal): their bodies are encrypted. The three messages of the handshake, and datagrams,
 * are never sealed. They have tags that are made with the key.
 */
#ifndef SHIFT_WIRE_H
#define SHIFT_WIRE_H

#include <linux/types.h>

#define SHIFT_WIRE_MAGIC 0x54464853 /* it reads "SHFT" on the wire */
#define SHIFT_WIRE_VERSION 5

/*
 * TCP and UDP. A job key has the port SHIFT_PORT + 1 + id % SHIFT_WIRE_KEY_PORTS; where these do
 * not all fit below 65536, it is SHIFT_PORT less the same number.
 */
#define SHIFT_WIRE_PORT 9473
#define SHIFT_WIRE_KEY_PORTS 1024

/* Sizes of byte arrays. */
#define SHIFT_WIRE_GID_SIZE 16
#define SHIFT_WIRE_INSTANCE_SIZE 16   /* names one life of one process; zeros name none */
#define SHIFT_WIRE_PUBLIC_KEY_SIZE 32 /* X25519 */
#define SHIFT_WIRE_NONCE_SIZE 16      /* random bytes */
#define SHIFT_WIRE_TAG_SIZE 16        /* a keyed BLAKE2b, or the tag of ChaCha20-Poly1305 */

/* Bounds. All sizes are in bytes, and of whole frames. */
#define SHIFT_WIRE_FRAME_MAX 1048576  /* a sealed one may have SHIFT_WIRE_SEAL_SIZE more */
#define SHIFT_WIRE_SEAL_SIZE 24       /* by which a sealed frame is longer */
#define SHIFT_WIRE_HANDSHAKE_MAX 256  /* Hello, HelloReply and Confirm of a handshake */
#define SHIFT_WIRE_STRANGER_MAX 4096  /* on a channel that no QP relies on */
#define SHIFT_WIRE_DATAGRAM_MAX 128   /* a longer one is dropped */
#define SHIFT_WIRE_ITEMS_MAX 65536    /* of any list */
#define SHIFT_WIRE_MEMBERS_MAX 8      /* NICs of one end, 1 at least: they are 0 to 7 */
#define SHIFT_WIRE_EPOCHS_AHEAD 65536 /* an epoch that is further ahead counts as stale */
#define SHIFT_WIRE_STEP_LOG2 40       /* by 2^40 a sequence number may exceed the last one taken */

/* What begins each frame. */
struct shift_wire_header { /* 20 bytes */
  /* 0: SHIFT_WIRE_MAGIC */
  __le32 magic;
  /* 4: SHIFT_WIRE_VERSION */
  __u8 version;
  /* 5: enum shift_wire_type; in clear in a sealed frame, too */
  __u8 type;
  /* 6: SHIFT_WIRE_SEALED or 0 */
  __le16 flags;
  /* 8: of the whole frame, in bytes, with this header */
  __le32 length;
  /*
   * 12: counts all messages of a process, to whichever peer, from 1 on. A receiver takes what is
   * newer than all that it has taken of the peer, and drops the rest: copies over other connections
   * have the same number. It is 0 in a handshake and in datagrams, where nobody looks at it.
   */
  __le64 sequence;
} __attribute__((packed));

enum shift_wire_flags {
  SHIFT_WIRE_SEALED = 1 << 0 /* struct shift_wire_seal and an encrypted body follow the header */
};

/*
 * What follows the header of a sealed frame. The encrypted body follows it, of the same size as in
 * clear, and then a tag of SHIFT_WIRE_TAG_SIZE bytes, which ends the frame. The cipher is
 * ChaCha20-Poly1305 (IETF). Its nonce is the sequence number, little-endian in 12 bytes; header and
 * key id are authenticated along with the body. The key of one way between two processes is the
 * BLAKE2b of "SHIFT channel", a zero byte, the sender's instance and the receiver's, with the job
 * key as key, 32 bytes of it.
 */
struct shift_wire_seal { /* 8 bytes */
  /* 0: of the job key; the beginning of the BLAKE2b (32 bytes) of "SHIFT job key id" and the key */
  __le64 key_id;
} __attribute__((packed));

/* Numbers are never used again, and new ones are larger. */
enum shift_wire_type {
  SHIFT_WIRE_HELLO = 1,
  SHIFT_WIRE_HELLO_REPLY = 2,
  SHIFT_WIRE_CONFIRM = 3,
  SHIFT_WIRE_BIND = 4,
  SHIFT_WIRE_OFFER = 5,
  SHIFT_WIRE_ACCEPT = 6,
  SHIFT_WIRE_READY = 7,
  SHIFT_WIRE_MEMBERS = 8,
  SHIFT_WIRE_DRAIN = 9,
  SHIFT_WIRE_SWITCH = 10,
  SHIFT_WIRE_PROGRESS = 11,
  SHIFT_WIRE_KEY_QUERY = 12,
  SHIFT_WIRE_KEY_REPLY = 13,
  SHIFT_WIRE_REFUSE = 14,
  SHIFT_WIRE_CLOSE = 15,
  SHIFT_WIRE_GID_QUERY = 16,  /* UDP only */
  SHIFT_WIRE_GID_ANSWER = 17, /* UDP only */
  SHIFT_WIRE_KEYS_GONE = 18,  /* to a peer with SHIFT_WIRE_BIND_FORGETS_KEYS */
  SHIFT_WIRE_KEYS_FORGOTTEN = 19,
  SHIFT_WIRE_AVOID = 20, /* to a peer with SHIFT_WIRE_BIND_HEEDS_AVOID */
  SHIFT_WIRE_NICS = 21,  /* between peers with SHIFT_WIRE_BIND_TELLS_NICS */
  SHIFT_WIRE_PROBE = 22  /* to a peer with SHIFT_WIRE_BIND_PROBES */
};
#define SHIFT_WIRE_TYPE_MAX 22

/* Parts of messages. */

/* The name of a default QP: that of the NIC which the application opened. */
struct shift_wire_qp { /* 20 bytes */
  /* 0: of its port; ::ffff:a.b.c.d where it holds an IPv4 address */
  __u8 gid[SHIFT_WIRE_GID_SIZE];
  /* 16: its number, of 24 bits */
  __le32 qpn;
} __attribute__((packed));

/* A path: a NIC of each end. The leader is the end whose QP has the smaller name. */
struct shift_wire_path { /* 2 bytes */
  /* 0: the leader's NIC; 0 is the default one */
  __u8 leader;
  /* 1: the follower's NIC */
  __u8 follower;
} __attribute__((packed));

/* A QP of a group, on whichever NIC, that is ready to be connected. */
struct shift_wire_address { /* 25 bytes */
  /* 0: of its port */
  __u8 gid[SHIFT_WIRE_GID_SIZE];
  /* 16: its number, of 24 bits */
  __le32 qpn;
  /* 20: the number of the first packet that it sends, of 24 bits */
  __le32 psn;
  /* 24: enum ibv_mtu: 1 to 5 for 256 to 4096 bytes */
  __u8 mtu;
} __attribute__((packed));

/* The handshake. */

/*
 * The first message of a connection: the dialer names itself and the process that it looks for.
 * On a channel it asks whether the peer's process owns another QP, too; then `identity`, `key`,
 * `nonce` and `tag` are zero.
 */
struct shift_wire_hello { /* 145 bytes */
  /* 0: the asking process */
  __u8 instance[SHIFT_WIRE_INSTANCE_SIZE];
  /* 16: its public key, whose hash is the instance; zero with a job key or a `target` */
  __u8 identity[SHIFT_WIRE_PUBLIC_KEY_SIZE];
  /* 48: the process that is looked for; zero: the one that owns `want` */
  __u8 target[SHIFT_WIRE_INSTANCE_SIZE];
  /* 64: the QP that is looked for; zero with a `target` */
  struct shift_wire_qp want;
  /* 84: the asker's QP, which is connected to it; zero with a `target` */
  struct shift_wire_qp from;
  /* 104: 0: found through `want`; n: for the channel's n-th pair of addresses */
  __u8 pair;
  /* 105: the id of the job key of the handshake's tags; 0: none */
  __le64 key;
  /* 113: new for each handshake */
  __u8 nonce[SHIFT_WIRE_NONCE_SIZE];
  /* 129: proves the job key, or the asker to a `target`; else zero */
  __u8 tag[SHIFT_WIRE_TAG_SIZE];
} __attribute__((packed));

enum shift_wire_hello_status {
  SHIFT_WIRE_HELLO_OK = 0,
  SHIFT_WIRE_HELLO_NO_SUCH_QP = 1, /* or it is not connected to the asker's */
  SHIFT_WIRE_HELLO_REFUSED = 2
};

/* The answer to a Hello. On a channel, `identity`, `nonce` and `tag` are zero. */
struct shift_wire_hello_reply { /* 122 bytes */
  /* 0: the answering process; zero in a denial of a handshake */
  __u8 instance[SHIFT_WIRE_INSTANCE_SIZE];
  /* 16: as in the Hello */
  __u8 identity[SHIFT_WIRE_PUBLIC_KEY_SIZE];
  /* 48: new for each handshake */
  __u8 nonce[SHIFT_WIRE_NONCE_SIZE];
  /* 64: copied from the Hello */
  struct shift_wire_qp want;
  /* 84: copied from the Hello */
  struct shift_wire_qp from;
  /* 104: enum shift_wire_hello_status */
  __u8 status;
  /* 105: with REFUSED; no reason has a number yet */
  __u8 reason;
  /* 106: over the Hello and this; zero in a denial without a job key */
  __u8 tag[SHIFT_WIRE_TAG_SIZE];
} __attribute__((packed));

/* The dialer's proof. */
struct shift_wire_confirm { /* 16 bytes */
  /* 0: over the Hello, the HelloReply and this */
  __u8 tag[SHIFT_WIRE_TAG_SIZE];
} __attribute__((packed));

/* Messages of a channel. `from` is the sender's default QP, and `to` the receiver's. */

enum shift_wire_bind_flags {
  SHIFT_WIRE_BIND_HAS_SQ_PSN = 1 << 0,     /* the sender's QP has reached RTS */
  SHIFT_WIRE_BIND_ASKS_RESPONDER = 1 << 1, /* the sender's mode asks (Progress, items) */
  SHIFT_WIRE_BIND_FORGETS_KEYS = 1 << 2,   /* the sender knows KeysGone */
  SHIFT_WIRE_BIND_HEEDS_AVOID = 1 << 3,    /* the sender knows Avoid */
  /* 1 << 4 was: the sender knows Nics, and names four NICs here. */
  SHIFT_WIRE_BIND_PROBES = 1 << 5,     /* the sender knows Probe */
  SHIFT_WIRE_BIND_TELLS_NICS = 1 << 6, /* the sender knows Nics */
  SHIFT_WIRE_BIND_HAS_MORE = 1 << 7    /* the sender has more NICs than it names here */
};

/* The start PSNs of the default QP, which prove that the process owns it, and the process's NICs.
 */
struct shift_wire_bind { /* 53 bytes, then items and an end */
  /* 0: */
  struct shift_wire_qp from;
  /* 20: */
  struct shift_wire_qp to;
  /* 40: the first packet that `from` sends; valid with HAS_SQ_PSN */
  __le32 sq_psn;
  /* 44: the first packet that `from` receives */
  __le32 rq_psn;
  /* 48: bit n: NIC n works */
  __u8 members_up;
  /* 49: of items, 1 to 4: older builds take no more */
  __le32 count;
} __attribute__((packed));

/* A NIC of the sender; the first one is the default. */
struct shift_wire_bind_item { /* 16 bytes */
  /* 0: of its port */
  __u8 gid[SHIFT_WIRE_GID_SIZE];
} __attribute__((packed));

struct shift_wire_bind_end { /* 8 bytes */
  /* 0: enum shift_wire_bind_flags; bits of newer builds are ignored */
  __le32 flags;
  /* 4: the sender's */
  __le32 epoch;
} __attribute__((packed));

/* Leader to follower: connect your QP of this path to mine. */
struct shift_wire_offer { /* 71 bytes */
  /* 0: */
  struct shift_wire_qp from;
  /* 20: */
  struct shift_wire_qp to;
  /* 40: */
  struct shift_wire_path path;
  /* 42: the number of this connection, which grows with each Offer of the two QPs */
  __le32 generation;
  /* 46: of the leader's QP of this path */
  struct shift_wire_address address;
} __attribute__((packed));

enum shift_wire_accept_status {
  SHIFT_WIRE_ACCEPT_ACCEPTED = 0,
  SHIFT_WIRE_ACCEPT_REFUSED = 1, /* the QP could not be connected */
  SHIFT_WIRE_ACCEPT_BUSY = 2     /* traffic may be under way on the QP */
};

/* Follower to leader: the answer to an Offer, whose path and generation it repeats. */
struct shift_wire_accept { /* 72 bytes */
  /* 0: */
  struct shift_wire_qp from;
  /* 20: */
  struct shift_wire_qp to;
  /* 40: */
  struct shift_wire_path path;
  /* 42: */
  __le32 generation;
  /* 46: enum shift_wire_accept_status */
  __u8 status;
  /* 47: of the follower's QP of this path; valid with ACCEPTED */
  struct shift_wire_address address;
} __attribute__((packed));

enum shift_wire_ready_kind {
  SHIFT_WIRE_READY_READY = 0, /* the path works */
  SHIFT_WIRE_READY_ASK = 1,   /* leader to follower: can you send over it? */
  SHIFT_WIRE_READY_BROKEN = 2 /* follower to leader: the path does not work, or no longer */
};

/* What is known of a connected path. */
struct shift_wire_ready { /* 47 bytes */
  /* 0: */
  struct shift_wire_qp from;
  /* 20: */
  struct shift_wire_qp to;
  /* 40: */
  struct shift_wire_path path;
  /* 42: */
  __le32 generation;
  /* 46: enum shift_wire_ready_kind */
  __u8 kind;
} __attribute__((packed));

/* Which NICs of the sender work now. */
struct shift_wire_members { /* 45 bytes */
  /* 0: */
  struct shift_wire_qp from;
  /* 20: */
  struct shift_wire_qp to;
  /* 40: grows with each Members of the two QPs */
  __le32 seq;
  /* 44: bit n: NIC n works */
  __u8 up;
} __attribute__((packed));

enum shift_wire_drain_kind {
  SHIFT_WIRE_DRAIN_ASK = 0,   /* leader to follower: post nothing new, and drain */
  SHIFT_WIRE_DRAIN_DONE = 1,  /* follower to leader: all that was under way has come out */
  SHIFT_WIRE_DRAIN_CANCEL = 2 /* leader to follower: it took too long, go on */
};

/* The way back to a better path. */
struct shift_wire_drain { /* 49 bytes */
  /* 0: */
  struct shift_wire_qp from;
  /* 20: */
  struct shift_wire_qp to;
  /* 40: the current one, which a drain does not change */
  __le32 epoch;
  /* 44: counts the leader's drains */
  __le32 attempt;
  /* 48: enum shift_wire_drain_kind */
  __u8 kind;
} __attribute__((packed));

enum shift_wire_switch_reason {
  SHIFT_WIRE_SWITCH_FAULT = 0,
  SHIFT_WIRE_SWITCH_RETURN = 1 /* no fault: a better path */
};

/* The sender stops using its path and fences it. */
struct shift_wire_switch { /* 49 bytes */
  /* 0: */
  struct shift_wire_qp from;
  /* 20: */
  struct shift_wire_qp to;
  /* 40: the new one; each change of path has one more than the last, and it wraps */
  __le32 epoch;
  /* 44: counts the sender's Switch and Progress messages of the two QPs */
  __le32 seq;
  /* 48: enum shift_wire_switch_reason */
  __u8 reason;
} __attribute__((packed));

/*
 * The sender's old path is fenced, and its receives stand on the target. The leader's names the
 * target, and the follower's confirms it.
 */
struct shift_wire_progress { /* 66 bytes, then items */
  /* 0: */
  struct shift_wire_qp from;
  /* 20: */
  struct shift_wire_qp to;
  /* 40: that of the Switch */
  __le32 epoch;
  /* 44: counts the sender's Switch and Progress messages of the two QPs */
  __le32 seq;
  /* 48: receives that were consumed since the sender's QP was made */
  __le64 notifications_received;
  /* 56: the path on which the traffic goes on */
  struct shift_wire_path target;
  /* 58: of the target's connection */
  __le32 generation;
  /* 62: of items; 0, unless the peer's Bind asks for them */
  __le32 count;
} __attribute__((packed));

/* How far the responder of a connection got that was fenced. */
struct shift_wire_progress_item { /* 10 bytes */
  /* 0: */
  struct shift_wire_path path;
  /* 2: of the connection; 0: the one that the application made */
  __le32 generation;
  /* 6: the next packet that it expected, of 24 bits */
  __le32 psn;
} __attribute__((packed));

/* Which keys have these regions of the receiver on that NIC of it? */
struct shift_wire_key_query { /* 53 bytes, then items */
  /* 0: */
  struct shift_wire_qp from;
  /* 20: */
  struct shift_wire_qp to;
  /* 40: the sender's */
  __le32 epoch;
  /* 44: repeated in the answer */
  __le32 query_id;
  /* 48: the NIC of the receiver */
  __u8 member;
  /* 49: of items */
  __le32 count;
} __attribute__((packed));

struct shift_wire_key_query_item { /* 4 bytes */
  /* 0: of a region, on the receiver's default NIC */
  __le32 rkey;
} __attribute__((packed));

/* The answer to a KeyQuery. */
struct shift_wire_key_reply { /* 49 bytes, then items */
  /* 0: */
  struct shift_wire_qp from;
  /* 20: */
  struct shift_wire_qp to;
  /* 40: copied from the query */
  __le32 query_id;
  /* 44: copied from the query */
  __u8 member;
  /* 45: of items */
  __le32 count;
} __attribute__((packed));

struct shift_wire_key_reply_item { /* 9 bytes */
  /* 0: copied from the query */
  __le32 rkey;
  /* 4: the region's key on the NIC that was asked for; valid with `found` */
  __le32 new_rkey;
  /* 8: 0 or 1 */
  __u8 found;
} __attribute__((packed));

enum shift_wire_refuse_reason {
  SHIFT_WIRE_REFUSE_UNKNOWN = 0,
  SHIFT_WIRE_REFUSE_GONE = 1, /* the QP is not there any more */
  SHIFT_WIRE_REFUSE_IN_ERROR = 2,
  SHIFT_WIRE_REFUSE_NOT_PROTECTED = 3,
  SHIFT_WIRE_REFUSE_NO_BACKUP = 4,
  SHIFT_WIRE_REFUSE_FENCE_FAILED = 5,
  SHIFT_WIRE_REFUSE_KEY_MISSING = 6
};

/* The QP cannot be moved. */
struct shift_wire_refuse { /* 45 bytes */
  /* 0: */
  struct shift_wire_qp from;
  /* 20: */
  struct shift_wire_qp to;
  /* 40: the one that is refused */
  __le32 epoch;
  /* 44: enum shift_wire_refuse_reason */
  __u8 reason;
} __attribute__((packed));

/* The QP was destroyed or reset, was moved to ERR, or broke by its application's own error. */
struct shift_wire_close { /* 40 bytes */
  /* 0: */
  struct shift_wire_qp from;
  /* 20: */
  struct shift_wire_qp to;
} __attribute__((packed));

/* These regions are gone: forget their keys, on all NICs. */
struct shift_wire_keys_gone { /* 53 bytes, then items */
  /* 0: */
  struct shift_wire_qp from;
  /* 20: */
  struct shift_wire_qp to;
  /* 40: the sender's */
  __le32 epoch;
  /* 44: repeated in the answer */
  __le32 number;
  /* 48: 0 or 1; 1: forget all keys, and there are no items */
  __u8 all;
  /* 49: of items */
  __le32 count;
} __attribute__((packed));

struct shift_wire_keys_gone_item { /* 4 bytes */
  /* 0: of a region that is gone, on the sender's default NIC */
  __le32 rkey;
} __attribute__((packed));

/* The answer to a KeysGone. */
struct shift_wire_keys_forgotten { /* 44 bytes */
  /* 0: */
  struct shift_wire_qp from;
  /* 20: */
  struct shift_wire_qp to;
  /* 40: copied from the KeysGone */
  __le32 number;
} __attribute__((packed));

/* Leave these NICs of the sender, though they work. */
struct shift_wire_avoid { /* 45 bytes */
  /* 0: */
  struct shift_wire_qp from;
  /* 20: */
  struct shift_wire_qp to;
  /* 40: grows with each Avoid of the two QPs */
  __le32 seq;
  /* 44: bit n: NIC n is to be left */
  __u8 members;
} __attribute__((packed));

/* All NICs of the sender's device group; a Bind names only the first two. */
struct shift_wire_nics { /* 44 bytes, then items */
  /* 0: */
  struct shift_wire_qp from;
  /* 20: */
  struct shift_wire_qp to;
  /* 40: of items, 1 to SHIFT_WIRE_MEMBERS_MAX */
  __le32 count;
} __attribute__((packed));

struct shift_wire_nics_item { /* 17 bytes */
  /* 0: */
  __u8 gid[SHIFT_WIRE_GID_SIZE];
  /* 16: what the NIC can carry, compared with the others */
  __u8 capacity;
} __attribute__((packed));

enum shift_wire_probe_kind {
  SHIFT_WIRE_PROBE_OFFER = 0,
  SHIFT_WIRE_PROBE_ACCEPT = 1,
  SHIFT_WIRE_PROBE_REFUSE = 2,
  SHIFT_WIRE_PROBE_TOLD = 3
};

enum shift_wire_probe_result {
  SHIFT_WIRE_PROBE_NOTHING = 0,
  SHIFT_WIRE_PROBE_PASSED = 1,
  SHIFT_WIRE_PROBE_FAILED = 2
};

/*
 * About the ways between NICs that are probed when a path has failed. An offer asks to connect a QP
 * of the NIC `peer` to the sender's; it is accepted or refused. TOLD says what a probe between the
 * NIC `own` and its neighbour in the device group has shown.
 */
struct shift_wire_probe { /* 73 bytes */
  /* 0: */
  struct shift_wire_qp from;
  /* 20: */
  struct shift_wire_qp to;
  /* 40: enum shift_wire_probe_kind */
  __u8 kind;
  /* 41: a NIC of the sender */
  __u8 own;
  /* 42: a NIC of the receiver */
  __u8 peer;
  /* 43: of the offer; copied into its answer */
  __le32 number;
  /* 47: enum shift_wire_probe_result; with TOLD */
  __u8 result;
  /* 48: with OFFER and ACCEPT; else zero */
  struct shift_wire_address address;
} __attribute__((packed));

/* Datagrams. */

/* Broadcast in a subnet: who has this GID, which holds no address? */
struct shift_wire_gid_query { /* 48 bytes */
  /* 0: random, and repeated in the answer */
  __le64 nonce;
  /* 8: */
  __u8 gid[SHIFT_WIRE_GID_SIZE];
  /* 24: the id of the job key of both tags; 0: none */
  __le64 key;
  /* 32: zero without a job key */
  __u8 tag[SHIFT_WIRE_TAG_SIZE];
} __attribute__((packed));

/* The answer, to the asker alone. It is a hint: the process found there has to prove itself. */
struct shift_wire_gid_answer { /* 56 bytes */
  /* 0: copied from the question */
  __le64 nonce;
  /* 8: copied from the question */
  __u8 gid[SHIFT_WIRE_GID_SIZE];
  /* 24: the IPv4 address at which the processes of that host are found, as ::ffff:a.b.c.d */
  __u8 address[SHIFT_WIRE_GID_SIZE];
  /* 40: zero without a job key */
  __u8 tag[SHIFT_WIRE_TAG_SIZE];
} __attribute__((packed));

#endif /* SHIFT_WIRE_H */
