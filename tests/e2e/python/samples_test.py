# SPDX-License-Identifier: Apache-2.0
"""Samples of runs, against a real daemon on two ranks at MESHLOOM_ADDRESS."""

import threading
import time
import unittest
import unittest.mock

import grpc
import numpy as np

import meshloom
from meshloom.v1 import run_service_pb2
from support import RunTestCase, data


class SamplesTest(RunTestCase):
    def endless(self) -> meshloom.SampleFuture:
        return self.run_.sample("a", max_tokens=60000, ignore_eos=True, past_context=True)

    def wait_until(self, done) -> None:
        end = time.monotonic() + 20
        while not done():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def test_samples(self) -> None:
        drawn = self.run_.sample(["in the", "word"], samples=3, max_tokens=7, seed=5, temperature=0.7).result()
        self.assertEqual([sequence.prompt for sequence in drawn], [0, 0, 0, 1, 1, 1])
        self.assertEqual(drawn[0].seed, 5)
        self.assertEqual(len({sequence.seed for sequence in drawn}), 6)
        again = self.run_.sample(np.frombuffer(b"word", np.uint8), max_tokens=7, seed=drawn[3].seed,
                                 temperature=0.7).result()
        np.testing.assert_array_equal(again[0].tokens, drawn[3].tokens)
        self.assertEqual(drawn[3].tokens.dtype, np.int32)
        self.assertEqual(drawn[3].tempered_logprobs.shape, drawn[3].logprobs.shape)
        sequence = np.concatenate([np.frombuffer(b"word", np.uint8), drawn[3].tokens])
        forward = self.run_.forward([meshloom.Datum.next_token(sequence)]).result()
        np.testing.assert_allclose(forward.logprobs[0][3:], drawn[3].logprobs, atol=1e-5)
        with self.assertRaises(meshloom.FailedPrecondition) as caught:
            self.run_.sample("a", max_tokens=2, weights_step=9).result()
        self.assertEqual(caught.exception.reason, "WEIGHTS_STALE")

    def test_samples_are_watched_scored_stopped_and_cancelled(self) -> None:
        future = self.run_.sample(["in the", "word"], samples=2, max_tokens=9, seed=5, exact_logprobs=True,
                                  prompt_logprobs=True)
        told: dict[int, list[int]] = {}
        for some in future.watch():
            self.assertEqual(some.first, len(told.setdefault(some.sequence, [])))
            told[some.sequence].extend(some.tokens.tolist())
            self.assertEqual(some.text, bytes(some.tokens.tolist()))
        drawn = future.result()
        self.assertEqual([told[i] for i in range(4)], [sequence.tokens.tolist() for sequence in drawn])
        sequences = [np.concatenate([np.frombuffer(text, np.uint8), sequence.tokens])
                     for text, sequence in zip((b"in the", b"in the", b"word", b"word"), drawn)]
        forward = self.run_.forward([meshloom.Datum.next_token(item) for item in sequences]).result()
        for logprobs, sequence in zip(forward.logprobs, drawn):
            np.testing.assert_array_equal(logprobs[-9:], sequence.exact_logprobs)
            np.testing.assert_allclose(logprobs[:-9], sequence.prompt_logprobs, atol=1e-5)
            self.assertEqual((sequence.finish_reason, sequence.first_weights_step), ("length", 0))
        pair = bytes(drawn[0].tokens[2:4].tolist())
        stopped = self.run_.sample("in the", max_tokens=9, seed=5, stop_strings=[pair]).result()[0]
        self.assertEqual(stopped.finish_reason, "stop_string")
        np.testing.assert_array_equal(stopped.tokens, drawn[0].tokens[:4])
        stopped = self.run_.sample("in the", max_tokens=9, seed=5, stop_tokens=[int(drawn[0].tokens[0])]).result()[0]
        self.assertEqual((stopped.finish_reason, len(stopped.tokens)), ("stop_token", 1))
        full = self.run_.sample("a", max_tokens=200, seed=5).result()[0]
        self.assertEqual((full.finish_reason, len(full.tokens)), ("context", 128))
        on = self.run_.sample("a", max_tokens=200, seed=5, past_context=True).result()[0]
        self.assertEqual((on.finish_reason, len(on.tokens)), ("length", 200))
        np.testing.assert_array_equal(on.tokens[:128], full.tokens)
        long = self.run_.sample("a", max_tokens=60000, ignore_eos=True, past_context=True)
        next(iter(long.watch()))
        self.assertTrue(long.cancel())
        with self.assertRaises(meshloom.Cancelled):
            long.result(20)

    def test_weights_in_memory_are_sampled_from_after_later_steps(self) -> None:
        weights = self.run_.save_weights("before", memory=True).result()
        before = self.run_.sample("in the", max_tokens=8, seed=1).result()[0]
        for _ in range(2):
            self.run_.forward_backward(data(), reduction="token_mean")
            self.run_.optim_step(lr=1.0)
        logprobs = self.run_.forward(data()).result().logprobs
        after = self.run_.sample("in the", max_tokens=8, seed=1, weights=weights, exact_logprobs=True).result()[0]
        np.testing.assert_array_equal(before.tokens, after.tokens)
        np.testing.assert_array_equal(before.logprobs, after.logprobs)
        self.assertEqual((before.weights_step, after.weights_step), (0, 0))
        np.testing.assert_array_equal(logprobs[0], self.run_.forward(data()).result().logprobs[0])
        self.assertEqual(self.run_.sample("in the", max_tokens=8, seed=1).result()[0].weights_step, 2)
        weights.delete()
        with self.assertRaises(meshloom.FailedPrecondition) as caught:
            self.run_.sample("a", max_tokens=2, weights=weights).result()
        self.assertEqual(caught.exception.reason, "SNAPSHOT_STALE")

    def test_all_are_with_the_daemon_at_once_and_can_be_cancelled(self) -> None:
        threads = threading.active_count()
        endless = [self.endless() for _ in range(40)]
        self.wait_until(lambda: all(future.operation for future in endless))
        self.assertLessEqual(threading.active_count(), threads + 2)
        self.assertTrue(endless[-1].cancel())
        with self.assertRaises(meshloom.Cancelled):
            endless[-1].result(20)
        # One that is drawn beside them ends before them.
        self.assertEqual(len(self.run_.sample("in the", max_tokens=3).result(20)[0].tokens), 3)
        self.assertFalse(any(future.done() for future in endless[:-1]))
        for future in endless[:-1]:
            self.assertTrue(future.cancel())
        for future in endless:
            self.assertIsInstance(future.exception(20), meshloom.Cancelled)
            self.assertFalse(future.cancel())

    def test_one_that_waits_for_the_ranks_is_cancelled_here(self) -> None:
        other = self.make()  # waits for the ranks behind the first
        first, second = other.sample("a"), other.sample("a", max_tokens=3)
        time.sleep(0.2)
        self.assertTrue(first.cancel())
        # At once where it waits here, else when the daemon has said so.
        with self.assertRaises(meshloom.Cancelled):
            first.result(20)
        with self.assertRaises(meshloom.Cancelled):
            next(first.watch())
        self.run_.close()
        self.assertEqual(len(second.result(20)[0].tokens), 3)

    def test_one_that_finds_no_room_is_sent_once_another_has_ended(self) -> None:
        call = self.run_._connection.call
        full = meshloom.ResourceExhausted("full", grpc.StatusCode.RESOURCE_EXHAUSTED, "MEMORY_ESTIMATE")
        refused: list[int] = []
        first = self.endless()
        self.wait_until(lambda: first.operation)

        def refusing(method, request, *arguments, **named):
            if isinstance(request, run_service_pb2.SampleRequest) and not first.done():
                refused.append(1)
                raise full
            return call(method, request, *arguments, **named)

        with unittest.mock.patch.object(self.run_._connection, "call", refusing):
            second = self.run_.sample("a", max_tokens=3)
            self.wait_until(lambda: refused)
            self.assertFalse(second.done())
            first.cancel()
            self.assertEqual(len(second.result(20)[0].tokens), 3)
            self.assertEqual(len(refused), 1)

    def test_the_end_of_a_run_waits_for_samples(self) -> None:
        self.run_.close()
        with self.make() as run:
            futures = [run.sample("a", max_tokens=20, seed=seed) for seed in range(10)]
        self.assertEqual([len(future.result(0)[0].tokens) for future in futures], [20] * 10)
        with self.assertRaises(meshloom.RunClosed):
            run.sample("a")


if __name__ == "__main__":
    unittest.main()
