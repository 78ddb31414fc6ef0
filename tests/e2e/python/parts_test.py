# SPDX-License-Identifier: Apache-2.0
"""Parts of the Python package that need no daemon."""

import time
import unittest
from typing import Iterator

import grpc
import numpy as np

import meshloom
from meshloom.connection import Connection
from meshloom.crc32c import _TABLE, crc32c
from meshloom.data import as_ints
from meshloom.job_events import events
from meshloom.lease import Lease
from meshloom.messages import fill
from meshloom.v1 import config_pb2, error_pb2, job_pb2, job_service_pb2, run_service_pb2
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

    def test_a_list_takes_the_place_of_the_one_that_is_there(self) -> None:
        spec = job_pb2.JobSpec()
        for label, decay, pattern in (("a", ["*.weight", "*.bias"], "x"), ("b", ["wte"], "y")):
            fill(spec, {"labels": {label: "1"},
                        "run": {"optimizer": {"decay": decay}, "plan": {"styles": [{"pattern": pattern}]}}})
        self.assertEqual(list(spec.run.optimizer.decay), ["wte"])
        self.assertEqual([style.pattern for style in spec.run.plan.styles], ["y"])
        self.assertEqual(dict(spec.labels), {"a": "1", "b": "1"}, "keys of a map are set one by one")
        for wrong in ({"labels": ["a"]}, {"run": {"optimizer": {"decay": {"a": 1}}}}):
            with self.assertRaises(meshloom.InvalidArgument):
                fill(spec, wrong)

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
    """A method of the daemon that is refused with these codes, reasons and texts before it answers: with the request
    where there is no answer of its own."""

    def __init__(self, *refusals: tuple[grpc.StatusCode, str] | tuple[grpc.StatusCode, str, str],
                 answer: object = None) -> None:
        self.refusals = list(refusals)
        self.answer = answer
        self.calls = 0

    def __call__(self, request: object, **_: object) -> object:
        self.calls += 1
        if not self.refusals:
            return request if self.answer is None else self.answer
        raise Refusal(*self.refusals.pop(0))


class Refusal(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode, reason: str, details: str = "refused") -> None:
        self._code = code
        self._details = details
        status = error_pb2.RpcStatus(code=code.value[0])
        if reason:
            detail = status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo")
            detail.value = error_pb2.ErrorInfo(reason=reason).SerializeToString()
        self._metadata = [("grpc-status-details-bin", status.SerializeToString())]

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

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

    def test_a_daemon_without_a_thread_is_asked_again(self) -> None:
        full = (grpc.StatusCode.RESOURCE_EXHAUSTED, "", "Server Threadpool Exhausted")
        call = FakeCall(full, full)
        self.assertEqual(self.connection.call(call, "request", repeatable=False), "request")
        self.assertEqual(call.calls, 3)
        with self.assertRaises(meshloom.ResourceExhausted) as caught:
            self.connection.call(FakeCall(full), "request", retry_seconds=0.0)
        self.assertNotIsInstance(caught.exception, meshloom.RequestTooLarge)
        too_large = FakeCall((grpc.StatusCode.RESOURCE_EXHAUSTED, "", "Received message larger than max"))
        with self.assertRaises(meshloom.RequestTooLarge):
            self.connection.call(too_large, "request")

    def test_it_ends_with_the_reason(self) -> None:
        with self.assertRaises(meshloom.Unavailable) as caught:
            self.connection.call(FakeCall(*[self.ENDING] * 100), "request", retry_seconds=0.2)
        self.assertEqual(caught.exception.reason, "LEASE_ENDING")


class LeaseTest(unittest.TestCase):
    """Heartbeats of a run whose lease is a second."""

    def setUp(self) -> None:
        self.connection = Connection("127.0.0.1:1", "lease-test", retry_seconds=10)
        self.addCleanup(self.connection.close)

    def beat(self, *refusals: tuple[grpc.StatusCode, str]) -> tuple[Lease, FakeCall]:
        call = FakeCall(*refusals, answer=run_service_pb2.HeartbeatResponse())
        self.connection.runs.Heartbeat = call
        lease = Lease(self.connection, "runs/a", "token", 1)
        self.addCleanup(lease.stop)
        return lease, call

    def test_one_that_is_refused_is_not_the_last(self) -> None:
        for code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE):
            with self.subTest(code):
                lease, call = self.beat((code, ""))
                end = time.monotonic() + 20
                while call.calls < 3 and time.monotonic() < end:
                    time.sleep(0.01)
                self.assertGreaterEqual(call.calls, 3)
                lease.stop()

    def test_they_end_with_the_run_and_with_the_connection(self) -> None:
        for code, reason in ((grpc.StatusCode.FAILED_PRECONDITION, "RUN_CLOSED"),
                             (grpc.StatusCode.FAILED_PRECONDITION, "LEASE_ENDED"),
                             (grpc.StatusCode.FAILED_PRECONDITION, "TOKEN_INVALID"),
                             (grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND")):
            with self.subTest(reason):
                lease, call = self.beat((code, reason))
                lease._thread.join(20)
                self.assertFalse(lease._thread.is_alive())
                self.assertEqual(call.calls, 1)
        lease, _ = self.beat(*[(grpc.StatusCode.UNAVAILABLE, "")] * 1000)
        self.connection.close()
        lease._thread.join(20)
        self.assertFalse(lease._thread.is_alive())


class FakeStream:
    """The messages of a call, and what ends it."""

    def __init__(self, messages: list[object], end: Exception | None) -> None:
        self._messages = messages
        self._end = end
        self.cancelled = False

    def __iter__(self) -> Iterator[object]:
        yield from self._messages
        if self._end is not None:
            raise self._end

    def cancel(self) -> None:
        self.cancelled = True


class FollowTest(unittest.TestCase):
    LOST = Refusal(grpc.StatusCode.UNAVAILABLE, "")
    TOO_OLD = Refusal(grpc.StatusCode.OUT_OF_RANGE, "REVISION_GONE")

    def setUp(self) -> None:
        self.connection = Connection("127.0.0.1:1", "follow-test", retry_seconds=10)
        self.addCleanup(self.connection.close)
        self.asked: list[int] = []
        self.calls: list[FakeStream] = []

    def follow(self, *streams: tuple[list[object], Exception | None]) -> list[tuple[str, int]]:
        waiting = list(streams)

        def watch(request: job_service_pb2.WatchJobRequest, **_: object) -> FakeStream:
            self.asked.append(request.after_revision)
            self.calls.append(FakeStream(*waiting.pop(0)))
            return self.calls[-1]

        self.connection.jobs.WatchJob = watch
        return [(event.kind, event.step) for event in events(self.connection, "jobs/a", lambda _: None)]

    @staticmethod
    def step(number: int, revision: int) -> job_service_pb2.WatchJobResponse:
        event = job_pb2.JobEvent(revision=revision)
        event.step.step = number
        return job_service_pb2.WatchJobResponse(event=event)

    @staticmethod
    def state(state: int, step: int, revision: int) -> job_service_pb2.WatchJobResponse:
        event = job_pb2.JobEvent(revision=revision)
        event.job.state, event.job.step = state, step
        return job_service_pb2.WatchJobResponse(event=event)

    def test_a_break_is_gone_on_after_and_nothing_is_told_twice(self) -> None:
        running, done = job_pb2.JOB_STATE_RUNNING, job_pb2.JOB_STATE_SUCCEEDED
        told = self.follow(([self.state(running, 0, 1), self.step(1, 2), self.step(2, 3)], self.LOST),
                           ([], self.LOST),
                           ([self.step(3, 4)], self.TOO_OLD),
                           ([self.state(running, 3, 5), self.step(3, 5), self.step(4, 6), self.state(done, 4, 7)], None))
        self.assertEqual(told, [("state", 0), ("step", 1), ("step", 2), ("step", 3), ("step", 4), ("state", 4)])
        self.assertEqual(self.asked, [0, 3, 3, 0])
        self.assertTrue(all(call.cancelled for call in self.calls))

    def test_numbers_of_an_event_are_told_though_they_are_0(self) -> None:
        event = job_pb2.JobEvent(revision=1)
        event.step.step, event.step.lr = 1, 0.0
        made = job_service_pb2.WatchJobResponse(event=event)
        self.connection.jobs.WatchJob = lambda request, **_: FakeStream([made], None)
        [told] = list(events(self.connection, "jobs/a", lambda _: None))
        self.assertEqual((told.values["lr"], told.values["loss"], told.loss), (0.0, 0.0, 0.0))
        self.assertNotIn("mfu", told.values, "it is not known")
        self.assertNotIn("collectives", told.values)

    def test_another_error_ends_it(self) -> None:
        with self.assertRaises(meshloom.NotFound):
            self.follow(([], Refusal(grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND")))


class NoDaemonTest(unittest.TestCase):
    def test_a_daemon_that_is_not_there(self) -> None:
        with meshloom.Client("127.0.0.1:1", retry_seconds=0.2) as client:
            with self.assertRaises(meshloom.Unavailable):
                client.create_training_run(CONFIG)


if __name__ == "__main__":
    unittest.main()
