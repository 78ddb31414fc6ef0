# SPDX-License-Identifier: Apache-2.0
"""Ordered verbs of runs, against a real daemon on two ranks at MESHLOOM_ADDRESS."""

import asyncio
import dataclasses
import os
import pathlib
import tempfile
import time
import unittest
import unittest.mock

import grpc
import numpy as np

import meshloom
from meshloom import uploads
from meshloom.v1 import config_pb2, run_service_pb2
from support import CONFIG, RunTestCase, data

FINAL_NORM = "transformer.ln_f.weight"


class RunTest(RunTestCase):
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
        self.assertAlmostEqual(first.loss_sum, -float(sum(lp.sum() for lp in first.logprobs)), places=2)
        self.assertEqual((first.tokens, first.loss), (60, first.loss_sum / 60))
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
        np.testing.assert_allclose(-sum(float(lp.sum(dtype=np.float64)) for lp in result.logprobs), result.loss_sum,
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
        saved = pathlib.Path(os.environ["TEST_STATE_DIR"]) / weights.folder
        with tempfile.TemporaryDirectory() as folder:
            copy = weights.download(pathlib.Path(folder) / "copy")
            names = sorted(path.name for path in saved.iterdir())
            self.assertEqual(sorted(path.name for path in copy.iterdir()), names)
            for name in names:
                self.assertEqual((copy / name).read_bytes(), (saved / name).read_bytes())
            with self.assertRaises(meshloom.InvalidArgument):
                weights.download(copy)
            weights.delete()
            with self.assertRaises(meshloom.NotFound):
                weights.download(pathlib.Path(folder) / "other")
            self.assertEqual([path.name for path in pathlib.Path(folder).iterdir()], ["copy"])

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
        self.assertAlmostEqual(metrics["loss:sum"], direct.result().loss_sum, places=3)
        self.assertEqual(metrics["surrogate_loss:sum"], direct.result().loss_sum)

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
        with self.assertRaises(meshloom.FailedPrecondition) as caught:
            self.client.open_training_run(self.run_.name, "0" * 32)
        self.assertEqual(caught.exception.reason, "TOKEN_INVALID")
        again.close()
        with self.assertRaises(meshloom.RunClosed):
            self.client.open_training_run(self.run_.name, self.run_.token).forward(data()).result()

    def test_a_run_is_deleted_by_the_name_that_made_it(self) -> None:
        self.run_.save_state("a").result()
        with self.assertRaises(meshloom.FailedPrecondition) as caught:
            self.client.delete_run(self.run_.name)
        self.assertEqual(caught.exception.reason, "RUN_NOT_ENDED")
        self.run_.close()
        with meshloom.Client(name="another") as other, self.assertRaises(meshloom.FailedPrecondition) as caught:
            other.delete_run(self.run_.name)
        self.assertEqual(caught.exception.reason, "RUN_OF_ANOTHER")
        self.client.delete_run(self.run_.name)
        self.assertNotIn(self.run_.name, [run.name for run in self.client.runs()])

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


if __name__ == "__main__":
    unittest.main()
