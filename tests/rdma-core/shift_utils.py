"""
Traffic of the tests of failover, of which each byte, each completion and their order are checked.

A sender numbers its requests, and a receiver what it receives. Number and queue pair decide the length and the
bytes of a message, so that either side can check it without a word of the other.
"""

import collections
import contextlib
import hashlib
import signal
import socket
import time

from pyverbs.cq import CQ, CQEX, CompChannel, CqInitAttrEx, PollCqAttr
from pyverbs.qp import QPCap, QPEx, QPInitAttr, QPInitAttrEx
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.wr import SGE, RecvWR, SendWR
from pyverbs.mr import MR
from tests.base import RCResources
from tests.shift_base import BOUND, e

SLOTS, SIZE, INLINE = 16, 2048, 64
RECV_TAG = 1 << 32

Completion = collections.namedtuple('Completion', 'wr_id status opcode byte_len qp_num imm')
# What a request of each kind looks like: its opcode, its bit of the extended API, and the opcodes of its
# completions at both ends. A READ or an atomic has none at the peer, and neither has a plain WRITE.
Kind = collections.namedtuple('Kind', 'opcode bit sent received')
KINDS = {
    'send': Kind(e.IBV_WR_SEND, e.IBV_QP_EX_WITH_SEND, e.IBV_WC_SEND, e.IBV_WC_RECV),
    'send_imm': Kind(e.IBV_WR_SEND_WITH_IMM, e.IBV_QP_EX_WITH_SEND_WITH_IMM, e.IBV_WC_SEND, e.IBV_WC_RECV),
    'inline': Kind(None, e.IBV_QP_EX_WITH_SEND, e.IBV_WC_SEND, e.IBV_WC_RECV),
    'write': Kind(e.IBV_WR_RDMA_WRITE, e.IBV_QP_EX_WITH_RDMA_WRITE, e.IBV_WC_RDMA_WRITE, None),
    'write_imm': Kind(e.IBV_WR_RDMA_WRITE_WITH_IMM, e.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, e.IBV_WC_RDMA_WRITE,
                      e.IBV_WC_RECV_RDMA_WITH_IMM),
    'read': Kind(e.IBV_WR_RDMA_READ, e.IBV_QP_EX_WITH_RDMA_READ, e.IBV_WC_RDMA_READ, None),
    'fetch_add': Kind(e.IBV_WR_ATOMIC_FETCH_AND_ADD, e.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, e.IBV_WC_FETCH_ADD,
                      None),
}
ACCESS = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ |
          e.IBV_ACCESS_REMOTE_ATOMIC)


class ShiftRC(RCResources):
    """
    RC queue pairs, and memory: one half is for what is sent, the other for what is received, or what the peer
    accesses, and each queue pair has its slots in both.
    """
    def __init__(self, dev_name, ib_port, gid_index, extended=True, cq='plain', **kwargs):
        """
        :param extended: Whether the queue pairs have the extended API for posting.
        :param cq: 'plain', 'events' (with a channel) or 'extended'.
        """
        self.extended, self.cq_kind, self.channel = extended, cq, None
        super().__init__(dev_name, ib_port, gid_index, msg_size=SIZE, **kwargs)

    def create_cq(self):
        if self.cq_kind == 'extended':
            flags = e.IBV_WC_EX_WITH_BYTE_LEN | e.IBV_WC_EX_WITH_IMM | e.IBV_WC_EX_WITH_QP_NUM
            self.cq = CQEX(self.ctx, CqInitAttrEx(cqe=self.num_msgs, wc_flags=flags))
            return
        if self.cq_kind == 'events':
            self.channel = CompChannel(self.ctx)
        self.cq = CQ(self.ctx, self.num_msgs, None, self.channel, 0)
        if self.channel:
            self.cq.req_notify()

    def create_mr(self):
        length = 2 * self.qp_count * SLOTS * SIZE
        self.mr = MR(self.pd, length, ACCESS)
        self.mr.write(bytes(length), length)

    def create_qp_cap(self):
        return QPCap(max_send_wr=4 * SLOTS, max_recv_wr=4 * SLOTS, max_inline_data=INLINE)

    def create_qp_init_attr(self):
        return QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, srq=self.srq, cap=self.create_qp_cap(),
                          sq_sig_all=0)

    def create_qp_attr(self):
        attr = super().create_qp_attr()
        attr.qp_access_flags = ACCESS
        return attr

    def create_qps(self):
        if not self.extended:
            super().create_qps()
            return
        bits = 0
        for kind in KINDS.values():
            bits |= kind.bit
        attr = QPInitAttrEx(cap=self.create_qp_cap(), qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq,
                            srq=self.srq, pd=self.pd, send_ops_flags=bits,
                            comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
        for number in range(self.qp_count):
            qp = QPEx(self.ctx, attr, self.create_qp_attr())
            self.qps.append(qp)
            self.qps_num.append(qp.qp_num)
            self.psns.append(0x123456 + 4096 * number)

    def to_rts(self):
        super().to_rts()
        self.routes = {}  # who wants to know of a completion, by queue pair and direction

    def sent_at(self, qp_idx, slot):
        return (qp_idx * SLOTS + slot) * SIZE

    def received_at(self, qp_idx, slot):
        return self.sent_at(self.qp_count + qp_idx, slot)

    @property
    def address(self):
        """What a peer needs to access the memory: address and key."""
        return self.mr.buf, self.mr.rkey


@contextlib.contextmanager
def bounded(seconds):
    """
    A blocking verb inside ends with an error after the time, since a signal interrupts what it waits in.
    """
    old = signal.signal(signal.SIGALRM, lambda *unused: None)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.02)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def async_event(ctx, seconds):
    """
    :return: The type of the next event of a context, or None when none comes in time.
    """
    with bounded(seconds):
        try:
            event = ctx.get_async_event()
        except PyverbsRDMAError:
            return None
    event.ack()
    return event.event_type


def _take_extended(cq, most):
    found = []
    if cq.start_poll(PollCqAttr()) != 0:
        return found
    while True:
        good = cq.status == e.IBV_WC_SUCCESS
        has_imm = good and cq.read_wc_flags() & e.IBV_WC_WITH_IMM
        found.append(Completion(cq.wr_id, cq.status, cq.read_opcode() if good else None, cq.read_byte_len(),
                                cq.read_qp_num(), socket.ntohl(cq.read_imm_data()) if has_imm else None))
        if len(found) == most or cq.poll_next() != 0:
            cq.end_poll()
            return found


def take(cq, most=SLOTS):
    """
    :return: Completions that are there, as tuples; fields that mean nothing are None.
    """
    if isinstance(cq, CQEX):
        return _take_extended(cq, most)
    return [Completion(wc.wr_id, wc.status, wc.opcode if wc.status == e.IBV_WC_SUCCESS else None, wc.byte_len,
                       wc.qp_num, socket.ntohl(wc.imm_data) if wc.wc_flags & e.IBV_WC_WITH_IMM else None)
            for wc in cq.poll(most)[1]]


def length_of(op, number):
    """An odd step, so that all lengths come, packets of one and of several among them."""
    return 8 if op == 'fetch_add' else 1 + number * 389 % (INLINE if op == 'inline' else SIZE)


def bytes_of(op, qp_idx, number):
    return hashlib.shake_128(b'%d %d' % (qp_idx, number)).digest(length_of(op, number))


def imm_of(op, number):
    return 0xc0de0000 + number if op.endswith('imm') else None


class Receives:
    """Posts receives to a queue pair or to a shared queue, and checks that each is consumed once."""

    def __init__(self, test, player, qp_idx=0):
        self.test, self.player, self.qp_idx = test, player, qp_idx
        self.is_shared = player.srq is not None
        self.queue = player.srq or player.qps[qp_idx]
        self.next, self.posted = 0, collections.deque()

    def fill(self):
        while len(self.posted) < SLOTS:
            self.post(self.next % SLOTS)

    def post(self, slot):
        # A shared queue may give receives in another order, so the slot is in the number.
        wr_id = RECV_TAG + self.next * SLOTS + slot
        sge = SGE(self.player.mr.buf + self.player.received_at(self.qp_idx, slot), SIZE, self.player.mr.lkey)
        self.queue.post_recv(RecvWR(wr_id=wr_id, num_sge=1, sg=[sge]))
        self.posted.append(wr_id)
        self.next += 1

    def consumed(self, wr_id):
        """
        :return: The slot of the receive, which must not be posted again before it was read.
        """
        if not self.is_shared:
            self.test.assertEqual(self.posted[0], wr_id, 'The receive is not the oldest one')
        self.test.assertIn(wr_id, self.posted, 'The receive was not posted, or is consumed twice')
        self.posted.remove(wr_id)
        return wr_id % SLOTS


class Receiver:
    """What one queue pair receives of one kind of request."""

    def __init__(self, test, player, op, qp_idx=0, receives=None):
        self.test, self.player, self.op, self.qp_idx = test, player, op, qp_idx
        self.seen, self.errors = 0, []
        self.receives = receives or Receives(test, player, qp_idx)
        self.receives.fill()
        player.routes[player.qps_num[qp_idx], True] = self

    def completed(self, done):
        if done.status != e.IBV_WC_SUCCESS:
            self.errors.append(done)
            return
        number, self.seen = self.seen, self.seen + 1
        expected = Completion(done.wr_id, e.IBV_WC_SUCCESS, KINDS[self.op].received, length_of(self.op, number),
                              self.player.qps_num[self.qp_idx], imm_of(self.op, number))
        self.test.assertEqual(expected, done, f'The completion of receive {number}')
        slot = self.receives.consumed(done.wr_id)
        # A WRITE says itself where its bytes go.
        place = number % SLOTS if self.op == 'write_imm' else slot
        at = self.player.received_at(self.receives.qp_idx, place)
        self.test.assertEqual(bytes_of(self.op, self.qp_idx, number), self.player.mr.read(done.byte_len, at),
                              f'The bytes of message {number}')
        self.receives.post(slot)


class Sender:
    """Posts requests of one kind on one queue pair, and checks their completions."""

    def __init__(self, test, player, op, peer=None, qp_idx=0, signal_every=1):
        """
        :param peer: The other player, if it is in this process. Requests that it does not notice need it.
        :param signal_every: One request in so many has a signal.
        """
        self.test, self.player, self.op, self.peer, self.qp_idx = test, player, op, peer, qp_idx
        self.signal_every, self.errors = signal_every, []
        self.next, self.done = 0, 0  # the numbers of the next request, and of the oldest outstanding one
        player.routes[player.qps_num[qp_idx], False] = self
        if op == 'read':
            for slot in range(SLOTS):
                peer.mr.write(bytes_of(op, qp_idx, slot).ljust(SIZE, b'\0'), SIZE,
                              peer.received_at(qp_idx, slot))

    def is_signaled(self, number):
        return number % self.signal_every == self.signal_every - 1

    def post(self, signaled=None):
        """
        :param signaled: Whether the request has a signal, if not by its number.
        """
        number, slot = self.next, self.next % SLOTS
        signaled = self.is_signaled(number) if signaled is None else signaled
        size = length_of(self.op, slot if self.op == 'read' else number)
        here = self.player.sent_at(self.qp_idx, slot)
        is_fetching = self.op in ('read', 'fetch_add')
        data = b'\xa5' * size if is_fetching else bytes_of(self.op, self.qp_idx, number)
        self.player.mr.write(data, size, here)
        sge = SGE(self.player.mr.buf + here, size, self.player.mr.lkey)
        remote, rkey = self.player.peer_address
        remote += self.player.received_at(self.qp_idx, 0 if self.op == 'fetch_add' else slot)
        self.next += 1
        post = self.post_extended if self.player.extended else self.post_classic
        post(number, e.IBV_SEND_SIGNALED if signaled else 0, sge, remote, rkey)
        if self.op == 'inline':
            # The buffer of inline data is free at once.
            self.player.mr.write(b'\x5a' * size, size, here)

    def post_extended(self, number, flags, sge, remote, rkey):
        qp = self.player.qps[self.qp_idx]
        qp.wr_start()
        # libibverbs does not ask for the flag, but soft-RoCE takes inline data only with it.
        qp.wr_id, qp.wr_flags = number, flags | (e.IBV_SEND_INLINE if self.op == 'inline' else 0)
        if self.op in ('send', 'inline'):
            qp.wr_send()
        elif self.op == 'send_imm':
            qp.wr_send_imm(imm_of(self.op, number))
        elif self.op == 'write':
            qp.wr_rdma_write(rkey, remote)
        elif self.op == 'write_imm':
            qp.wr_rdma_write_imm(rkey, remote, imm_of(self.op, number))
        elif self.op == 'read':
            qp.wr_rdma_read(rkey, remote)
        else:
            qp.wr_atomic_fetch_add(rkey, remote, 1)
        if self.op == 'inline':
            qp.wr_set_inline_data(sge.addr, sge.length)
        else:
            qp.wr_set_sge(sge)
        qp.wr_complete()

    def post_classic(self, number, flags, sge, remote, rkey):
        wr = SendWR(wr_id=number, opcode=KINDS[self.op].opcode, num_sge=1, sg=[sge], send_flags=flags,
                    imm_data=socket.htonl(imm_of(self.op, number) or 0))
        if self.op == 'fetch_add':
            wr.set_wr_atomic(rkey, remote, 1)
        elif self.op not in ('send', 'send_imm'):
            wr.set_wr_rdma(rkey, remote)
        self.player.qps[self.qp_idx].post_send(wr)

    def completed(self, done):
        if done.status != e.IBV_WC_SUCCESS:
            self.errors.append(done)
            return
        self.test.assertEqual([], self.errors, 'A request succeeded after one that failed')
        # An unsignaled request is over when a later one completes.
        expected = next(number for number in range(self.done, self.next + self.signal_every)
                        if self.is_signaled(number))
        self.test.assertLess(expected, self.next, 'A completion of a request that was not posted')
        self.test.assertEqual((expected, KINDS[self.op].sent, self.player.qps_num[self.qp_idx]),
                              (done.wr_id, done.opcode, done.qp_num),
                              'The completion is not that of the oldest request with a signal')
        for number in range(self.done, expected + 1):
            self.check(number)
        self.done = expected + 1

    def check(self, number):
        """Checks what a request was to do, once it has completed."""
        slot = number % SLOTS
        here, there = self.player.sent_at(self.qp_idx, slot), self.player.received_at(self.qp_idx, slot)
        if self.op == 'write':
            self.test.assertEqual(bytes_of(self.op, self.qp_idx, number),
                                  self.peer.mr.read(length_of(self.op, number), there),
                                  f'The bytes that WRITE {number} has written')
        elif self.op == 'read':
            self.test.assertEqual(bytes_of(self.op, self.qp_idx, slot),
                                  self.player.mr.read(length_of(self.op, slot), here),
                                  f'The bytes that READ {number} has read')
        elif self.op == 'fetch_add':
            self.test.assertEqual(number, number_at(self.player.mr, here), f'What atomic {number} has fetched')


def number_at(mr, offset):
    """An atomic has the order of bytes of the machine."""
    return memoryview(mr.read(8, offset)).cast('Q')[0]


def dispatch(player):
    """
    Gives completions that are there to whom they concern.
    :return: How many there were.
    """
    found = take(player.cq)
    for done in found:
        player.routes[done.qp_num, bool(done.wr_id & RECV_TAG)].completed(done)
    return len(found)


class Traffic:
    """Requests of one kind on all queue pairs of two players of this process, from the client to the server."""

    def __init__(self, test, client, server, op, signal_every=1, window=8):
        self.test, self.client, self.server, self.window = test, client, server, window
        self.senders = [Sender(test, client, op, server, idx, signal_every) for idx in range(client.qp_count)]
        self.receivers = []
        if KINDS[op].received is not None:
            shared = Receives(test, server) if server.srq else None
            self.receivers = [Receiver(test, server, op, idx, shared) for idx in range(server.qp_count)]

    def errors(self):
        return [error for one in self.senders + self.receivers for error in one.errors]

    def step(self, limit):
        """
        Posts what the window has room for, up to the number of a request, and looks for completions.
        """
        for idx, sender in enumerate(self.senders):
            seen = self.receivers[idx].seen if self.receivers else sender.done
            while sender.next < limit and sender.next - min(sender.done, seen) < self.window:
                sender.post()
        for player in (self.client, self.server):
            dispatch(player)

    def is_over(self):
        return (all(sender.done == sender.next for sender in self.senders) and
                len({sender.next for sender in self.senders}) == 1 and
                all(receiver.seen == self.senders[0].next for receiver in self.receivers))

    def run(self, count):
        """
        Posts so many more requests on each queue pair, and waits until all are over.
        """
        self.goal(max(sender.next for sender in self.senders) + count)

    def goal(self, limit):
        every = self.senders[0].signal_every
        limit += -limit % every  # the last one must have a signal
        deadline = time.perf_counter() + BOUND
        while not (self.is_over() and self.senders[0].next == limit):
            self.step(limit)
            self.test.assertEqual([], self.errors())
            self.test.assertLess(time.perf_counter(), deadline, f'{[vars(one) for one in self.senders]}')
        self.test.assertFalse(dispatch(self.client) + dispatch(self.server), 'There were too many completions')

    def run_through(self, fault, dev_name=None, more=40):
        """
        Goes on while a fault is made, and with some more requests after it.
        """
        process = self.test.fault_start(fault, dev_name)
        while process.poll() is None:
            self.step(max(sender.next for sender in self.senders) + 1)
            self.test.assertEqual([], self.errors())
        self.test.fault_wait(process)
        self.run(more)
