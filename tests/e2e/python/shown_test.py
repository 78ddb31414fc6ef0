# SPDX-License-Identifier: Apache-2.0
"""What the Python package shows and hints at; needs no daemon."""

import contextlib
import importlib.util
import io
import json
import pathlib
import threading
import unittest
import unittest.mock
import xml.etree.ElementTree

import numpy as np

import meshloom
from meshloom import comparison, progress
from meshloom.chart import Chart
from meshloom.data import SampledSequence
from meshloom.job_view import job_html, job_text
from meshloom.messages import field_paths, fill, plain
from meshloom.metrics import read_metrics
from meshloom.prompts import conversation, prompt_message, several
from meshloom.v1 import config_pb2, job_pb2


def lines(losses: list[float | None], begin: int = 1) -> list[str]:
    made = [json.dumps({"step": begin + i, "loss": loss, "lr": 0.1, "job": "jobs/a", "mfu": None, "tokens": 10 * i})
            for i, loss in enumerate(losses)]
    return [*made, json.dumps({"step": 2, "validation_loss": 4.5, "perplexity": 90.0})]


class MetricsTest(unittest.TestCase):
    def test_lines_are_columns(self) -> None:
        metrics = read_metrics(iter([*lines([3.0, None, 1.5]), *lines([1.25], begin=3)]))
        self.assertEqual(metrics["step"].tolist(), [1, 2, 3])
        np.testing.assert_array_equal(metrics["loss"], [3.0, np.nan, 1.25])
        self.assertEqual((metrics["step"].dtype.kind, metrics["tokens"].dtype.kind), ("i", "i"))
        self.assertTrue(np.isnan(metrics["mfu"]).all())
        self.assertEqual(metrics.curve("loss"), {1: 3.0, 3: 1.25})
        self.assertEqual(metrics.validation["validation_loss"].tolist(), [4.5])
        self.assertEqual(metrics.validation["step"].tolist(), [2])
        with self.assertRaisesRegex(KeyError, "did you mean loss"):
            metrics["los"]
        self.assertEqual(len(read_metrics(iter([]))), 0)

    def test_jobs_are_compared_where_all_have_been(self) -> None:
        first, second = read_metrics(iter(lines([3.0, 2.0, 1.0]))), read_metrics(iter(lines([4.0, 3.5])))
        made = comparison.compare({"a": ("succeeded", {"optimizer": {"lr": 0.1}, "mesh": {"dp": 2}}, first),
                                   "b": ("failed", {"optimizer": {"lr": 0.2, "eps": 1.0}, "mesh": {"dp": 2}}, second)}, 12)
        self.assertEqual(made.losses, {1: (3.0, 4.0), 2: (2.0, 3.5)})
        self.assertEqual(made.fields, {"optimizer.lr": (0.1, 0.2), "optimizer.eps": (None, 1.0)})
        self.assertEqual(made.validation, {2: (4.5, 4.5)})
        self.assertRegex(repr(made), r"optimizer\.lr +0\.1 +0\.2")
        self.assertEqual(made.bits_per_byte, {}, "nothing says what text it was")
        self.assertIn("<table>", made._repr_html_())
        many = read_metrics(iter(lines([float(i) for i in range(100)])))
        both = comparison.compare({"a": ("", {}, many), "b": ("", {}, many)}, 5)
        self.assertEqual(list(both.losses), [1, 26, 51, 75, 100])


class ChartTest(unittest.TestCase):
    CURVE = {step: 5.0 - 0.04 * step for step in range(1, 101)}

    def test_text_falls_with_the_curve(self) -> None:
        text = Chart({"loss": self.CURVE}, "loss by step").text(columns=60, rows=10)
        rows = text.splitlines()
        self.assertEqual(rows[0], "loss by step")
        self.assertTrue(all(len(row) <= 60 for row in rows), text)
        self.assertTrue(rows[1].startswith("4.96 ┤"), text)
        self.assertEqual(rows[-1], "loss: 1 at step 100")
        columns = [len(row.rstrip()) for row in rows[1:11]]
        self.assertEqual(columns, sorted(columns), "a curve that falls has its end at the right of the last row")

    def test_svg_is_a_whole_document(self) -> None:
        svg = Chart({"a<b": self.CURVE, "one": {5: 2.0}}, "loss & more").svg()
        root = xml.etree.ElementTree.fromstring(svg)
        self.assertTrue(root.tag.endswith("svg"))
        self.assertEqual(len([item for item in root if item.tag.endswith("polyline")]), 1)
        self.assertNotIn("<script", svg)
        self.assertIn("nothing to draw", Chart({"loss": {}}, "loss").svg())
        self.assertIn("nothing to draw", Chart({}, "loss").text())

    def test_a_figure_needs_matplotlib(self) -> None:
        chart = Chart({"loss": self.CURVE}, "loss")
        if importlib.util.find_spec("matplotlib") is None:
            with self.assertRaises(meshloom.FailedPrecondition) as caught:
                chart.figure()
            self.assertEqual(caught.exception.reason, "NO_MATPLOTLIB")
            return
        axes = chart.figure().axes[0]
        self.assertEqual(list(axes.lines[0].get_ydata()), list(self.CURVE.values()))


class ProgressTest(unittest.TestCase):
    def events(self) -> list[meshloom.JobEvent]:
        steps = [meshloom.JobEvent("step", step, "running", 5.0 / step) for step in range(1, 1001)]
        return [meshloom.JobEvent("state", 0, "running"), *steps, meshloom.JobEvent("state", 1000, "succeeded")]

    def written(self, terminal: bool) -> str:
        out = io.StringIO()
        out.isatty = lambda: terminal  # type: ignore[method-assign]
        with contextlib.redirect_stderr(out), progress.Display("job-1") as display:
            for event in self.events():
                display.show(event, 1000)
        return out.getvalue()

    def test_a_file_gets_few_lines(self) -> None:
        text = self.written(terminal=False)
        self.assertLessEqual(len(text.splitlines()), 3)
        self.assertIn("job-1: succeeded, step 1000/1000", text)

    def test_a_terminal_has_one_line_that_is_written_over(self) -> None:
        text = self.written(terminal=True)
        self.assertEqual(text.count("\n"), 1)
        self.assertIn("\r", text)
        self.assertIn("job-1: succeeded, step 1000/1000", text)

    def test_lines_of_another_thread_stay_whole(self) -> None:
        out = io.StringIO()
        out.isatty = lambda: True  # type: ignore[method-assign]
        with contextlib.redirect_stderr(out), progress.Display("job-1") as display:
            with unittest.mock.patch.object(progress, "_BETWEEN_UPDATES", 0.0):
                teller = threading.Thread(target=lambda: [display.say("waits behind jobs/a") for _ in range(500)])
                teller.start()
                for event in self.events():
                    display.show(event, 1000)
                teller.join()
        lines = [line.rsplit("\r", 1)[-1].rstrip() for line in out.getvalue().removesuffix("\n").split("\n")]
        self.assertEqual(lines.count("job-1: waits behind jobs/a"), 500)
        self.assertEqual(len(lines), 501)

    def test_who_tells_of_waiting_is_silent_behind_its_end(self) -> None:
        said: list[str] = []
        with unittest.mock.patch.object(progress, "_FIRST_WAIT", 0.0):
            with progress.WaitTeller(lambda: "behind jobs/a", said.append) as teller:
                pass
        self.assertFalse(teller._thread.is_alive())
        self.assertLessEqual(len(said), 1)

    def test_a_notebook_has_one_output_that_is_updated(self) -> None:
        cell = unittest.mock.Mock()
        with unittest.mock.patch.object(progress, "_notebook_cell", lambda: cell), progress.Display("job-1") as display:
            for event in self.events():
                display.show(event, 1000)
        self.assertLessEqual(cell.update.call_count, 5)
        self.assertIn("succeeded", cell.update.call_args[0][0]._repr_html_())


class ReprTest(unittest.TestCase):
    def test_jobs(self) -> None:
        job = job_pb2.Job(name="jobs/a<b", state=job_pb2.JOB_STATE_RUNNING, step=3, steps=9, notes=["1 < 2"])
        job.last_step.loss = 2.5
        self.assertEqual(job_text(job), "<Job jobs/a<b: running, step 3/9, loss 2.5000>")
        html = job_html(job, Chart({"loss": {1: 3.0, 2: 2.0}}, "loss"))
        for part in ("jobs/a&lt;b", "1 &lt; 2", "<polyline", "step 3 of 9"):
            self.assertIn(part, html)

    def test_results(self) -> None:
        result = meshloom.LossResult([], [], {"loss:sum": 30.0, "tokens:sum": 12.0})
        self.assertEqual((result.loss, result.loss_sum, result.tokens), (2.5, 30.0, 12))
        self.assertEqual(repr(result), "LossResult(loss=2.5 over 12 tokens, 0 data)")
        self.assertTrue(np.isnan(meshloom.LossResult([], [], {"loss:sum": 0.0, "tokens:sum": 0.0}).loss))
        self.assertEqual(repr(meshloom.Datum([1, 2], [2, 3], weights=[1, 0])), "Datum(2 tokens, weights)")
        none = np.zeros(0, np.float32)
        drawn = SampledSequence(0, np.array([65]), none, None, "length", 0, 0, 7, None, None, b"A")
        self.assertEqual(repr(drawn), "SampledSequence('A', 1 tokens, length, seed=7)")
        without = SampledSequence(0, np.array([65]), none, None, "length", 0, 0, 7, None, None, None)
        with self.assertRaisesRegex(meshloom.InvalidArgument, "tokenizer"):
            without.text


class HintsTest(unittest.TestCase):
    def test_keywords(self) -> None:
        client = meshloom.Client("127.0.0.1:1")
        self.addCleanup(client.close)
        for call, meant in ((lambda: meshloom.Client(adress="x"), "address"),
                            (lambda: client.generate("jobs/a", "x", max_new_tokens=3), "max_tokens"),
                            (lambda: client.create_training_run({}, lease_second=3), "lease_seconds"),
                            (lambda: client.submit({}, label={}), "labels"),
                            (lambda: meshloom.TrainingRun.optim_step(None, learning_rate=1), "lr"),
                            (lambda: meshloom.TrainingRun.sample(None, "a", num_return_sequences=1), "samples"),
                            (lambda: meshloom.Job.edit(None, stepps=5), "steps")):
            with self.subTest(meant), self.assertRaisesRegex(TypeError, f"did you mean {meant}\\?"):
                call()
        with self.assertRaisesRegex(TypeError, "has no argument 'xyzzy' \\("):
            client.generate("jobs/a", xyzzy=1)

    def test_fields_and_values(self) -> None:
        for values, meant in (({"optimiser": {}}, "optimizer"), ({"optimizer": {"type": "adamm"}}, "adam"),
                              ({"training": {"step": 1}}, "steps")):
            with self.subTest(meant), self.assertRaisesRegex(meshloom.InvalidArgument, f"did you mean {meant}"):
                fill(config_pb2.RunConfig(), values)
        for wrong in ({"mesh": 3}, {"optimizer": {"decay": "*.weight"}}, [1]):
            with self.assertRaises(meshloom.InvalidArgument):
                fill(config_pb2.RunConfig(), wrong)

    def test_addresses(self) -> None:
        # The program meshloom is held to the same list.
        cases = pathlib.Path(__file__).with_name("addresses.txt").read_text(encoding="utf-8").splitlines()
        for given, meant in (line.split() for line in cases if not line.startswith("#")):
            with self.subTest(given):
                if meant == "refused":
                    self.assertRaises(meshloom.InvalidArgument, meshloom.Client, given)
                    continue
                with meshloom.Client(given) as client:
                    self.assertEqual(client.address, meant)
        self.assertRaises(meshloom.InvalidArgument, meshloom.Client, "")

    def test_messages_both_ways(self) -> None:
        values = {"optimizer": {"type": "sgd", "decay": ["*.weight"]}, "mesh": {"tp": 2},
                  "plan": {"styles": [{"pattern": "x"}]}}
        config = fill(config_pb2.RunConfig(), values)
        self.assertEqual(plain(config), values)
        self.assertEqual(list(field_paths(config)), ["mesh.tp", "plan.styles", "optimizer.type", "optimizer.decay"])


class PromptsTest(unittest.TestCase):
    TURN = {"role": "user", "content": "hi"}

    def test_one_or_several(self) -> None:
        self.assertEqual(len(several("ab")), 1)
        self.assertEqual(len(several(["ab", "cd"])), 2)
        self.assertEqual(len(several([1, 2])), 1)
        self.assertEqual(len(several([[1, 2], "a"])), 2)
        self.assertEqual(len(several([self.TURN, self.TURN])), 1)
        self.assertEqual(len(several([[self.TURN], "a"])), 2)
        self.assertEqual(prompt_message([self.TURN]).chat.messages[0].content, "hi")
        self.assertEqual(list(prompt_message(np.array([1, 2])).token_ids), [1, 2])

    def test_what_is_no_message_is_named(self) -> None:
        for wrong in ({"role": "user"}, {"role": "user", "content": 3}, {**self.TURN, "name": "x"}, "hi"):
            with self.assertRaisesRegex(meshloom.InvalidArgument, r"messages\[1\]"):
                conversation([self.TURN, wrong])


if __name__ == "__main__":
    unittest.main()
