"""
Tests failover of RC queue pairs: both ends are in one process, as in most tests of this suite.
"""

import json
import time
import unittest

from tests.shift_base import BOUND, PASSED, ShiftTestCase, alone, e, wait_until
from tests.shift_utils import (SLOTS, Receiver, Sender, ShiftRC, Traffic, async_event, bounded, dispatch,
                               number_at)
import pyverbs.device as d


def device_facts(config):
    """
    :return: All that a program can ask about a device and its port, as text.
    """
    ctx = d.Context(name=config['dev'])
    attr, port = ctx.query_device_ex(), ctx.query_port(config['port'])
    facts = {}
    for name, thing in (('device', ctx.query_device()), ('device_ex', attr), ('port', port),
                        *((part, getattr(attr, part)) for part in dir(attr) if part.endswith('_caps'))):
        for field in dir(thing):
            value = getattr(thing, field)
            if not field.startswith('_') and isinstance(value, (int, str, bytes)):
                facts[f'{name}.{field}'] = str(value)
    for index in range(port.gid_tbl_len):
        facts[f'gid.{index}'] = ctx.query_gid(config['port'], index).gid
    for known in d.get_device_list():
        facts[f'list.{known.name.decode()}'] = f'{known.guid} {known.node_type} {known.transport_type}'
    facts['vectors'] = str(ctx.num_comp_vectors)
    return facts


class ShiftPairTestCase(ShiftTestCase):
    """
    Players in this process, with queue pairs that are protected.
    """
    def create_players(self, resource=ShiftRC, **resource_arg):
        """
        :param resource: The class of both players.
        :param resource_arg: Arguments of their own.
        """
        self.client = resource(**self.dev_info, **resource_arg)
        self.server = resource(**self.dev_info, **resource_arg)
        self.client.pre_run(self.server.psns, self.server.qps_num)
        self.server.pre_run(self.client.psns, self.client.qps_num)
        self.client.peer_address, self.server.peer_address = self.server.address, self.client.address
        self.players = self.client, self.server
        self.await_protection(*self.players)

    def masked(self, op, fault, signal_every=1, **resource_arg):
        """
        Traffic goes through a fault, and each byte and completion is right.
        """
        self.create_players(**resource_arg)
        traffic = Traffic(self, self.client, self.server, op, signal_every)
        traffic.run(20)
        traffic.run_through(fault)
        self.assert_moves(self.players, fault)
        traffic.run(20)
        self.assert_moves(self.players, fault)
        return traffic


class ShiftTrafficTest(ShiftPairTestCase):
    """
    Each kind of request, through each fault.
    """
    def test_send_link_down(self):
        self.masked('send', 'link-down')

    def test_write_imm_link_down(self):
        self.masked('write_imm', 'link-down')

    def test_write_link_down(self):
        self.masked('write', 'link-down')

    def test_read_link_down(self):
        self.masked('read', 'link-down')

    def test_inline_link_down(self):
        self.masked('inline', 'link-down')

    @alone()
    def test_send_kill(self):
        self.masked('send', 'kill')

    @alone()
    def test_write_imm_kill(self):
        self.masked('write_imm', 'kill')

    @alone()
    def test_read_kill(self):
        self.masked('read', 'kill')

    @alone()
    def test_inline_kill(self):
        self.masked('inline', 'kill')

    def test_send_drop_acks(self):
        self.masked('send_imm', 'drop-acks')

    def test_unsignaled_drop_acks(self):
        self.masked('send', 'drop-acks', signal_every=8)

    def test_unsignaled_write_imm_drop_acks(self):
        self.masked('write_imm', 'drop-acks', signal_every=8, extended=False)

    def test_read_drop_acks(self):
        self.masked('read', 'drop-acks')

    def test_send_drop_data(self):
        self.masked('send', 'drop-data', extended=False)


class ShiftQueuesTest(ShiftPairTestCase):
    """
    Shared receive queues, and the ways to learn of completions.
    """
    def test_srq_link_down(self):
        self.masked('send', 'link-down', with_srq=True, qp_count=2)

    def test_srq_drop_acks(self):
        self.masked('send_imm', 'drop-acks', with_srq=True, qp_count=2, extended=False)

    def test_cqex_link_down(self):
        self.masked('write_imm', 'link-down', cq='extended')

    def test_cqex_drop_acks(self):
        self.masked('send_imm', 'drop-acks', cq='extended')

    def with_events(self, fault):
        """
        Each completion is waited for in the completion channel.
        """
        def wait_for(player, condition):
            while not condition():
                with bounded(BOUND):
                    player.channel.get_cq_event(player.cq)
                player.cq.req_notify()
                while dispatch(player):
                    pass
                self.assertEqual([], sender.errors + receiver.errors)

        def window():
            for _ in range(SLOTS):
                sender.post()
            wait_for(self.server, lambda: receiver.seen == sender.next)
            wait_for(self.client, lambda: sender.done == sender.next)

        self.create_players(cq='events')
        sender, receiver = Sender(self, self.client, 'send_imm'), Receiver(self, self.server, 'send_imm')
        window()
        process = self.fault_start(fault)
        while process.poll() is None:
            window()
        self.fault_wait(process)
        for _ in range(4):
            window()
        self.assert_moves(self.players, fault)
        window()
        self.assertFalse(dispatch(self.client) + dispatch(self.server), 'There were too many completions')

    def test_cq_events_link_down(self):
        self.with_events('link-down')

    def test_cq_events_drop_acks(self):
        self.with_events('drop-acks')


class ShiftAtomicTest(ShiftPairTestCase):
    """
    Atomics are executed once, or end in the original error; SHIFT_MODE decides which faults are masked.
    """
    def create_players(self, *unused, **resource_arg):
        super().create_players(**resource_arg)
        if self.client.ctx.query_device().atomic_caps == e.IBV_ATOMIC_NONE:
            raise unittest.SkipTest('Atomic operations are not supported')

    def counter(self):
        return number_at(self.server.mr, self.server.received_at(0, 0))

    def steps(self):
        return len(self.records.find('state', self.client.qp.qp_num))

    def under_way(self, fault):
        """
        Posts atomics that a silent fault catches.
        :return: Their sender, after it has completed some others.
        """
        self.create_players()
        traffic = Traffic(self, self.client, self.server, 'fetch_add')
        traffic.run(10)
        self.fault(fault)
        for _ in range(6):
            traffic.senders[0].post()
        return traffic

    def assert_original_error(self, traffic):
        """
        The oldest request has the error of a broken path, those after it are flushed, and each completes once.
        """
        sender = traffic.senders[0]
        wait_until(lambda: dispatch(self.client) and sender.done + len(sender.errors) == sender.next)
        self.assertEqual(list(range(sender.done, sender.next)), [done.wr_id for done in sender.errors])
        self.assertEqual([e.IBV_WC_RETRY_EXC_ERR] + [e.IBV_WC_WR_FLUSH_ERR] * (len(sender.errors) - 1),
                         [done.status for done in sender.errors])
        self.assertEqual(1, len(self.records.find('failed', self.client.qp.qp_num)))

    @alone(SHIFT_MODE='relaxed')
    def test_relaxed_under_way(self):
        traffic = self.under_way('drop-data')
        self.assert_original_error(traffic)
        # No request has come through.
        self.assertEqual(10, self.counter())

    @alone(SHIFT_MODE='relaxed')
    def test_relaxed_result_lost(self):
        traffic = self.under_way('drop-acks')
        self.assert_original_error(traffic)
        # One was executed at least, and none twice.
        self.assertIn(self.counter(), range(11, 17))

    @alone(SHIFT_MODE='relaxed')
    def test_relaxed_parked(self):
        # What is posted when the path is known to be broken waits for the other one.
        self.create_players()
        traffic = Traffic(self, self.client, self.server, 'fetch_add')
        traffic.run(10)
        before = self.steps()
        self.fault('link-down')
        # The first step is recorded before it is taken.
        wait_until(lambda: self.steps() >= before + 2)
        traffic.run(10)
        self.assert_moves(self.players, 'link-down')
        self.assertEqual(20, self.counter())

    @alone(SHIFT_MODE='exact')
    def test_exact_under_way(self):
        traffic = self.under_way('drop-data')
        traffic.run(10)
        self.assert_moves(self.players, 'drop-data')
        self.assertEqual(traffic.senders[0].next, self.counter())

    @alone(SHIFT_MODE='exact')
    def test_exact_result_lost(self):
        traffic = self.under_way('drop-acks')
        self.assert_original_error(traffic)
        self.assertIn(self.counter(), range(11, 17))


class ShiftFaultsTest(ShiftPairTestCase):
    """
    What a program sees of a fault, of its end, and of one that cannot be masked.
    """
    def assert_hidden(self):
        for player in self.players:
            self.assertIsNone(async_event(player.ctx, 0.2), 'The program has got an event')
            self.assertEqual(e.IBV_PORT_ACTIVE, player.ctx.query_port(self.ib_port).state)
            self.assertEqual(e.IBV_QPS_RTS, player.qp.query(e.IBV_QP_STATE)[0].qp_state)

    def test_hidden_link_down(self):
        before = device_facts(self.config)
        traffic = self.masked('send', 'link-down')
        self.assert_hidden()
        self.assertEqual(before.keys(), device_facts(self.config).keys())
        traffic.run(20)

    @alone()
    def test_hidden_kill(self):
        traffic = self.masked('send', 'kill')
        self.assert_hidden()
        traffic.run(20)

    def test_way_back(self):
        traffic = self.masked('send', 'link-down')
        self.fault('link-up')
        limit = time.perf_counter() + BOUND
        while min(len(self.moves(player.qp.qp_num)) for player in self.players) < 2:
            traffic.run(8)
            self.assertLess(time.perf_counter(), limit, 'The traffic does not go back')
        traffic.run(20)
        self.assert_moves(self.players, 'link-down', 'way back')
        # It is protected again.
        traffic.run_through('link-down')
        self.assert_moves(self.players, 'link-down', 'way back', 'link-down')
        self.assert_hidden()

    @alone(SHIFT_EXCHANGE_MS='1000')
    def test_no_path_left(self):
        traffic = self.masked('send', 'link-down')
        backup = self.moves(self.client.qp.qp_num)[0][1]
        sender, receiver = traffic.senders[0], traffic.receivers[0]
        self.fault('link-down', backup)
        for _ in range(4):
            sender.post()
        wait_until(lambda: dispatch(self.client) + dispatch(self.server) and
                   len(sender.errors) == 4 and len(receiver.errors) == SLOTS)
        self.assertEqual(sender.done, receiver.seen)
        self.assertEqual(list(range(sender.done, sender.next)), [done.wr_id for done in sender.errors])
        self.assertEqual([e.IBV_WC_RETRY_EXC_ERR] + 3 * [e.IBV_WC_WR_FLUSH_ERR],
                         [done.status for done in sender.errors])
        self.assertEqual(list(receiver.receives.posted), [done.wr_id for done in receiver.errors])
        self.assertEqual({e.IBV_WC_WR_FLUSH_ERR}, {done.status for done in receiver.errors})
        for player in self.players:
            self.assertEqual(1, len(self.records.find('failed', player.qp.qp_num)))
            self.assertEqual(1, len(self.moves(player.qp.qp_num)))


class ShiftDeviceTest(ShiftPairTestCase):
    """
    A device is described as without the layer, which may only leave out capabilities.
    """
    FLAGS = ('device.device_cap_flags', 'device_ex.device_cap_flags_ex')

    def test_same_facts(self):
        self.create_players()
        with_layer = device_facts(dict(self.config, dev=self.dev_name, port=self.ib_port))
        code, output = self.run_new('call', 'tests.test_shift.device_facts', {'SHIFT_DISABLE': '1'})
        self.assertEqual(PASSED, code, output)
        without_layer = json.loads(output)
        self.assertEqual(without_layer.keys(), with_layer.keys())
        for name in self.FLAGS:
            # The size of a shared receive queue cannot be changed.
            left_out = int(without_layer.pop(name)) ^ int(with_layer.pop(name))
            self.assertEqual(0, left_out & ~e.IBV_DEVICE_SRQ_RESIZE, name)
        self.assertEqual({}, {name: (value, with_layer[name]) for name, value in without_layer.items()
                              if value != with_layer[name]})
        self.assertIn('device.max_qp', with_layer)
