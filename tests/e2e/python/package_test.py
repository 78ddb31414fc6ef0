# SPDX-License-Identifier: Apache-2.0
"""The Python package against a real daemon on two ranks at MESHLOOM_ADDRESS."""

import asyncio
import dataclasses
import pathlib
import tempfile
import time
import unittest
import unittest.mock

import grpc
import numpy as np

import meshloom
from meshloom import uploads
from meshloom.data import as_ints
from meshloom.messages import fill
from meshloom.v1 import config_pb2, run_service_pb2

CONFIG = {"model": {"preset": "byte_gpt_tiny"}, "plan": {"dtype": "float32"},
          "training": {"seq_len": 128, "seed": 3, "micro_batch_size": 8}, "optimizer": {"type": "sgd", "lr": 0.1}}
TEXT = b"in the beginning was the word and the word was light"
FINAL_NORM = "transformer.ln_f.weight"


def data(count: int = 3, length: int = 20) -> list[meshloom.Datum]:
    text = np.frombuffer(TEXT, np.uint8)
    return [meshloom.Datum.next_token(np.resize(np.roll(text, -5 * i), length + 1)) for i in range(count)]


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
        self.assertEqual(uploads.crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(uploads.crc32c(bytes(32)), 0x8A9136AA)  # RFC 3720, B.4
        self.assertEqual(uploads.crc32c(bytes(range(32))), 0x46DD794E)
        for size in (0, 1, 255, 256, 257, 5000):
            whole, sums = bytes(i * i % 251 for i in range(size)), 0xFFFFFFFF
            for byte in whole:
                sums = int(uploads._TABLE[(sums ^ byte) & 0xFF]) ^ (sums >> 8)
            self.assertEqual(uploads.crc32c(whole), sums ^ 0xFFFFFFFF)


class RunTest(unittest.TestCase):
    def setUp(self) -> None:
        self.client = meshloom.Client(name="package-test")
        self.addCleanup(self.client.close)
        self.run_ = self.make()

    def make(self, **fields) -> meshloom.TrainingRun:
        run = self.client.create_training_run(fields.pop("config", CONFIG), **fields)
        self.addCleanup(run.close)
        return run

    def final_norm(self) -> np.ndarray:
        return self.run_.get_parameters([FINAL_NORM]).result()[FINAL_NORM]

    def test_pipelined_verbs_run_in_order(self) -> None:
        before = self.run_.forward(data())
        steps = [(self.run_.forward_backward(data(), reduction="token_mean"), self.run_.optim_step())
                 for _ in range(4)]
        after = self.run_.forward(data())
        self.assertEqual([step.result().step for _, step in steps], [1, 2, 3, 4])
        self.assertEqual([future.seq for pair in steps for future in pair], list(range(2, 10)))
        first = steps[0][0].result()
        self.assertEqual(first.metrics, before.result().metrics)
        for mine, other in zip(first.logprobs, before.result().logprobs):
            self.assertEqual((mine.dtype, mine.shape), (np.dtype(np.float32), (20,)))
            np.testing.assert_array_equal(mine, other)
        self.assertAlmostEqual(first.loss, -float(sum(lp.sum() for lp in first.logprobs)), places=2)
        self.assertLess(after.result().loss, before.result().loss)

    def test_errors_are_typed_and_the_run_goes_on(self) -> None:
        wrong = data()
        wrong[1].targets = np.full(20, 256)
        with self.assertRaises(meshloom.InvalidArgument) as caught:
            self.run_.forward_backward(wrong).result()
        self.assertEqual(caught.exception.reason, "INVALID_ARGUMENT")
        self.assertIn("data[1].targets[0]", caught.exception.field)
        with self.assertRaises(meshloom.GradientsPoisoned):
            self.run_.optim_step().result()
        with self.assertRaises(meshloom.InvalidArgument):
            self.run_.forward_backward(data(), loss="cross_entropie").result()
        with self.assertRaises(meshloom.GradientsPoisoned):
            self.run_.optim_step().result()
        with self.assertRaises(meshloom.FailedPrecondition) as caught_none:
            self.run_.optim_step().result()
        self.assertEqual(caught_none.exception.reason, "NO_GRADIENTS")
        self.run_.forward_backward(data(), reduction="token_mean")
        self.assertEqual(self.run_.optim_step().result().step, 1)
        with self.assertRaises(meshloom.NotFound):
            self.run_.load_state("runs/nobody/states/none").result()
        with self.assertRaises(meshloom.InvalidArgument):
            self.run_.forward(data(), reduction="mean")

    def test_a_verb_that_is_too_large_is_skipped(self) -> None:
        too_large = {FINAL_NORM: np.zeros(5 << 20, np.float32)}
        with unittest.mock.patch.object(uploads, "LARGEST_REQUEST", 1 << 40):  # not sent as an upload
            refused = self.run_.set_parameters(too_large)
            behind = self.run_.forward(data())
            with self.assertRaises(meshloom.RequestTooLarge):
                refused.result(20)
            self.assertEqual(len(behind.result(20).logprobs), 3)

    def test_large_verbs_travel_as_uploads(self) -> None:
        refused = self.run_.set_parameters({FINAL_NORM: np.zeros(5 << 20, np.float32)})
        with self.assertRaises(meshloom.InvalidArgument) as caught:
            refused.result(60)
        self.assertEqual(caught.exception.field, "parameters[0].shape")
        inline = self.run_.forward(data(40, 100)).result(60)
        with unittest.mock.patch.object(uploads, "LARGEST_REQUEST", 1000):
            uploaded = self.run_.forward(data(40, 100)).result(60)
        self.assertEqual(uploaded.metrics, inline.metrics)
        np.testing.assert_array_equal(np.concatenate(uploaded.logprobs), np.concatenate(inline.logprobs))

    def test_data_that_the_ranks_read(self) -> None:
        reference = meshloom.DataReference("text.txt", samples=4, seq_len=32)
        first = self.run_.forward(reference).result(20)
        self.assertEqual([item.shape for item in first.logprobs], [(32,)] * 4)
        self.assertEqual(first.metrics["tokens:sum"], 4 * 32)
        identity = first.data_identity
        self.assertGreater(identity.tokens, 1000)
        same = dataclasses.replace(reference, identity=identity)
        self.run_.forward_backward(same)
        self.assertEqual(self.run_.optim_step().result(20).step, 1)
        other = config_pb2.DataIdentity(tokens=1, digest="0" * 32)
        with self.assertRaises(meshloom.FailedPrecondition) as changed:
            self.run_.forward(dataclasses.replace(reference, identity=other)).result(20)
        self.assertEqual(changed.exception.reason, "DATA_CHANGED")
        with self.assertRaises(meshloom.MeshloomError) as beyond:
            self.run_.forward(dataclasses.replace(reference, first_sample=1 << 30)).result(20)
        self.assertEqual(beyond.exception.reason, "DATA_OUT_OF_RANGE")

    def test_verbs_behind_a_lost_connection_do_not_wait_for_its_number(self) -> None:
        call = self.run_._connection.call
        for arrives in (False, True):
            lost: list[int] = []

            def losing(method, request, *arguments, arrives=arrives, lost=lost, **named):
                if isinstance(request, run_service_pb2.ForwardRequest) and not lost:
                    lost.append(request.id.seq)
                    if arrives:  # the answer alone is lost
                        call(method, request, *arguments, **named)
                    raise meshloom.Unavailable("the connection is lost", grpc.StatusCode.UNAVAILABLE)
                return call(method, request, *arguments, **named)

            self.run_._connection.call = losing
            first, second = self.run_.forward(data()), self.run_.forward(data())
            with self.subTest(arrives=arrives):
                with self.assertRaises(meshloom.Unavailable):
                    first.result(20)
                self.assertEqual(second.result(20).metrics["tokens:sum"], 60)
                self.assertEqual(lost, [first.seq])

    def test_large_results_come_as_a_stream(self) -> None:
        many = data(1100, 128)
        result = self.run_.forward(many).result()
        self.assertEqual(len(result.logprobs), 1100)
        np.testing.assert_allclose(-sum(float(lp.sum(dtype=np.float64)) for lp in result.logprobs), result.loss,
                                   rtol=1e-5)

    def test_parameters_and_states(self) -> None:
        values = self.final_norm()
        self.run_.set_parameters({FINAL_NORM: values * 2})
        np.testing.assert_array_equal(self.final_norm(), values * 2)
        state = self.run_.save_state("twice", user_metadata={"epoch": "1"}).result()
        self.assertEqual((state.step, state.user_metadata), (0, {"epoch": "1"}))
        self.run_.set_parameters({FINAL_NORM: values})
        self.run_.load_state(state.name)
        np.testing.assert_array_equal(self.final_norm(), values * 2)
        with self.assertRaises(meshloom.AlreadyExists):
            self.run_.save_state("twice").result()
        self.assertGreater(self.run_.save_state("twice", overwrite=True).result().next_seq, state.next_seq)
        with self.assertRaises(meshloom.InvalidArgument):
            self.run_.set_parameters({FINAL_NORM: np.zeros((3, 5))}).result()
        weights = self.run_.save_weights("hf").result()
        self.assertTrue(weights.folder.endswith("/hf"))
        with tempfile.TemporaryDirectory() as folder:
            copy = weights.download(pathlib.Path(folder) / "copy")
            names = sorted(path.name for path in pathlib.Path(weights.folder).iterdir())
            self.assertEqual(sorted(path.name for path in copy.iterdir()), names)
            for name in names:
                self.assertEqual((copy / name).read_bytes(), (pathlib.Path(weights.folder) / name).read_bytes())
            with self.assertRaises(meshloom.InvalidArgument):
                weights.download(copy)
            weights.delete()
            with self.assertRaises(meshloom.NotFound):
                weights.download(pathlib.Path(folder) / "other")
            self.assertEqual([path.name for path in pathlib.Path(folder).iterdir()], ["copy"])

    def test_samples(self) -> None:
        drawn = self.run_.sample(["in the", "word"], samples=3, max_tokens=7, seed=5, temperature=0.7).result()
        self.assertEqual([sequence.prompt for sequence in drawn], [0, 0, 0, 1, 1, 1])
        again = self.run_.sample(np.frombuffer(b"word", np.uint8), max_tokens=7, seed=8, temperature=0.7).result()
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
        long = self.run_.sample("a", max_tokens=60000, ignore_eos=True)
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

    def test_a_custom_loss_has_the_gradient_of_its_weights(self) -> None:
        weights = [np.linspace(-1, 2, 20, dtype=np.float32) for _ in range(3)]

        def weighted(_: object, logprobs: list[np.ndarray]):
            loss = -sum(float((w * np.asarray(lp)).sum()) for w, lp in zip(weights, logprobs))
            return loss, [-w for w in weights], {"mine:sum": 4.0}

        start = self.run_.save_state("start").result().name
        custom = self.run_.forward_backward_custom(data(), weighted)
        self.run_.optim_step()
        mine = self.final_norm()
        self.run_.load_state(start)
        known = [meshloom.Datum(datum.tokens, datum.targets, weights=w) for datum, w in zip(data(), weights)]
        direct = self.run_.forward_backward(known)
        self.run_.optim_step()
        np.testing.assert_array_equal(mine, self.final_norm())
        metrics = custom.result().metrics
        self.assertEqual(metrics["mine:sum"], 4.0)
        self.assertAlmostEqual(metrics["loss:sum"], direct.result().loss, places=3)
        self.assertEqual(metrics["surrogate_loss:sum"], direct.result().loss)

    def test_without_torch_its_losses_are_refused_before_a_verb(self) -> None:
        with unittest.mock.patch("importlib.util.find_spec", return_value=None):
            with self.assertRaises(meshloom.InvalidArgument) as caught:
                self.run_.forward_backward_custom(data(), lambda *_: 0, framework="torch")
        self.assertEqual(caught.exception.field, "framework")
        self.assertEqual(self.run_.forward(data()).seq, 1)

    def test_a_custom_loss_that_fails_poisons_the_step(self) -> None:
        def failing(*_: object) -> None:
            raise ArithmeticError("no loss today")

        future = self.run_.forward_backward_custom(data(), failing)
        step = self.run_.optim_step()
        with self.assertRaises(ArithmeticError):
            future.result(20)
        with self.assertRaises(meshloom.GradientsPoisoned):
            step.result(20)
        shapeless = self.run_.forward_backward_custom(data(), lambda *_: (1.0, [np.zeros(2)] * 3))
        with self.assertRaises(meshloom.InvalidArgument):
            shapeless.result(20)

    def test_futures_can_be_awaited_together(self) -> None:
        async def all_of_it() -> list:
            return await asyncio.gather(self.run_.forward(data()), self.run_.forward(data(1)), self.run_.sample("a"))

        first, second, drawn = asyncio.run(all_of_it())
        self.assertEqual((len(first.logprobs), len(second.logprobs), len(drawn)), (3, 1, 1))

    def test_heartbeats_keep_an_idle_run(self) -> None:
        run = self.make(lease_seconds=1)
        self.run_.close()
        run.wait_ready(30)
        time.sleep(2.5)
        self.assertEqual(run.forward(data()).result().metrics["tokens:sum"], 60)

    def test_a_run_is_opened_again_by_its_token(self) -> None:
        self.run_.forward_backward(data())
        self.run_.detach()
        again = self.client.open_training_run(self.run_.name, self.run_.token)
        self.assertEqual(again.optim_step().result().step, 1)
        stranger = self.client.open_training_run(self.run_.name, "0" * 32)
        with self.assertRaises(meshloom.FailedPrecondition) as caught:
            stranger.forward(data()).result()
        self.assertEqual(caught.exception.reason, "TOKEN_INVALID")
        again.close()
        with self.assertRaises(meshloom.RunClosed):
            self.client.open_training_run(self.run_.name, self.run_.token).forward(data()).result()

    def test_a_queued_verb_is_cancelled(self) -> None:
        other = self.make()  # waits for the ranks behind the first
        future = other.forward(data())
        while not future.operation:
            time.sleep(0.01)
        self.assertTrue(future.cancel())
        with self.assertRaises(meshloom.Cancelled):
            future.result(20)
        self.assertIn(self.run_.name, other.info().ahead)

    def test_a_run_that_lost_its_weights_goes_on_from_its_state(self) -> None:
        self.run_.close()
        run = self.make(config={**CONFIG, "debug": {"fail_step": 2, "fail_rank": 1}})
        run.forward_backward(data())
        run.optim_step()
        saved = run.save_state("one").result()
        lost = run.forward_backward(data())
        with self.assertRaises(meshloom.MeshloomError):
            lost.result()
        with self.assertRaises(meshloom.RunRecovered) as caught:
            run.optim_step().result()
        self.assertEqual((caught.exception.state, caught.exception.step), (saved.name, 1))
        self.assertEqual(run.recover(), saved)
        self.assertEqual(run.forward(data()).result().metrics["tokens:sum"], 60)


class NoDaemonTest(unittest.TestCase):
    def test_a_daemon_that_is_not_there(self) -> None:
        with meshloom.Client("127.0.0.1:1", retry_seconds=0.2) as client:
            with self.assertRaises(meshloom.Unavailable):
                client.create_training_run(CONFIG)


if __name__ == "__main__":
    unittest.main()
