# SPDX-License-Identifier: Apache-2.0
"""Parts of the Python package that need no daemon."""

import unittest

import grpc
import numpy as np

import meshloom
from meshloom.connection import Connection
from meshloom.crc32c import _TABLE, crc32c
from meshloom.data import as_ints
from meshloom.messages import fill
from meshloom.v1 import config_pb2, error_pb2
from support import CONFIG


class MessagesTest(unittest.TestCase):
    def test_mappings_become_messages(self) -> None:
        config = fill(config_pb2.RunConfig(), {"optimizer": {"type": "sgd", "decay": ["*.weight"]}, "mesh": {"tp": 2}})
        self.assertEqual(config.optimizer.type, config_pb2.OPTIMIZER_TYPE_SGD)
        self.assertEqual(list(config.optimizer.decay), ["*.weight"])
        self.assertEqual(config.mesh.tp, 2)

    def test_what_does_not_fit_is_named(self) -> None:
        for values, field in (({"optimiser": {}}, "optimiser"), ({"optimizer": {"type": "adamax"}}, "optimizer.type"),
                              ({"mesh": {"tp": "two"}}, "mesh.tp"), ({"mesh": {"tp": 2**40}}, "mesh.tp"),
                              ({"plan": {"styles": [{"patern": "x"}]}}, "plan.styles[0].patern")):
            with self.subTest(field), self.assertRaises(meshloom.InvalidArgument) as caught:
                fill(config_pb2.RunConfig(), values)
            self.assertEqual(caught.exception.field, field)

    def test_arrays_are_checked_not_rounded(self) -> None:
        for wrong in ([0.5], np.array([2**31]), ["a"]):
            with self.assertRaises(meshloom.InvalidArgument):
                as_ints(wrong, "tokens")
        self.assertEqual(as_ints(np.array([[1, 2], [3, 4]], np.uint8), "targets").tolist(), [1, 2, 3, 4])


class ChecksumTest(unittest.TestCase):
    def test_crc32c(self) -> None:
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(crc32c(bytes(32)), 0x8A9136AA)  # RFC 3720, B.4
        self.assertEqual(crc32c(bytes(range(32))), 0x46DD794E)
        for size in (0, 1, 255, 256, 257, 5000):
            whole, sums = bytes(i * i % 251 for i in range(size)), 0xFFFFFFFF
            for byte in whole:
                sums = int(_TABLE[(sums ^ byte) & 0xFF]) ^ (sums >> 8)
            self.assertEqual(crc32c(whole), sums ^ 0xFFFFFFFF)


class FakeCall:
    """A method of the daemon that is refused with these codes and reasons before it answers."""

    def __init__(self, *refusals: tuple[grpc.StatusCode, str]) -> None:
        self.refusals = list(refusals)
        self.calls = 0

    def __call__(self, request: object, **_: object) -> object:
        self.calls += 1
        if not self.refusals:
            return request
        raise Refusal(*self.refusals.pop(0))


class Refusal(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode, reason: str) -> None:
        self._code = code
        status = error_pb2.RpcStatus(code=code.value[0])
        if reason:
            detail = status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo")
            detail.value = error_pb2.ErrorInfo(reason=reason).SerializeToString()
        self._metadata = [("grpc-status-details-bin", status.SerializeToString())]

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "refused"

    def trailing_metadata(self) -> list[tuple[str, bytes]]:
        return self._metadata


class RetryTest(unittest.TestCase):
    UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
    ENDING = (UNAVAILABLE, "LEASE_ENDING")  # while the state of a run whose lease has ended is saved

    def setUp(self) -> None:
        self.connection = Connection("127.0.0.1:1", "retry-test", retry_seconds=10)
        self.addCleanup(self.connection.close)

    def test_unavailable_alone_is_tried_again(self) -> None:
        call = FakeCall((self.UNAVAILABLE, ""), self.ENDING, (self.UNAVAILABLE, "STOPPING"))
        self.assertEqual(self.connection.call(call, "request"), "request")
        self.assertEqual(call.calls, 4)
        call = FakeCall(self.ENDING, (grpc.StatusCode.FAILED_PRECONDITION, "LEASE_ENDED"))
        with self.assertRaises(meshloom.LeaseEnded):
            self.connection.call(call, "request")
        self.assertEqual(call.calls, 2)

    def test_what_may_have_been_done_is_not_done_twice(self) -> None:
        call = FakeCall(self.ENDING, (self.UNAVAILABLE, ""))
        with self.assertRaises(meshloom.Unavailable):
            self.connection.call(call, "request", repeatable=False)
        self.assertEqual(call.calls, 2)

    def test_it_ends_with_the_reason(self) -> None:
        with self.assertRaises(meshloom.Unavailable) as caught:
            self.connection.call(FakeCall(*[self.ENDING] * 100), "request", retry_seconds=0.2)
        self.assertEqual(caught.exception.reason, "LEASE_ENDING")


class NoDaemonTest(unittest.TestCase):
    def test_a_daemon_that_is_not_there(self) -> None:
        with meshloom.Client("127.0.0.1:1", retry_seconds=0.2) as client:
            with self.assertRaises(meshloom.Unavailable):
                client.create_training_run(CONFIG)


if __name__ == "__main__":
    unittest.main()
