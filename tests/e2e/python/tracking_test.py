# SPDX-License-Identifier: Apache-2.0
"""Jobs in trackers. Against a real daemon at MESHLOOM_ADDRESS where there is one, with the real packages where they are
installed, and with a stand-in for what only a server of wandb answers."""

import contextlib
import dataclasses
import importlib
import json
import math
import os
import pathlib
import sys
import tempfile
import types
import unittest

import meshloom
from meshloom.metrics_line import read_line
from meshloom.tracking import Row, run_name, send
from meshloom.tracking.course import rows_of, shown_name

JOB = {"run": {"model": {"preset": "byte_gpt_tiny"}, "plan": {"dtype": "float32"},
               "training": {"steps": 6, "seq_len": 32, "global_batch_size": 8}, "optimizer": {"lr": 3e-3},
               "data": {"path": "text.txt"}, "validation": {"interval": 3, "steps": 1}}}


def line(step: int, attempt: int = 1, **values: object) -> meshloom.MetricsLine:
    text = json.dumps({"step": step, "attempt": attempt, "time": "2026-01-31T12:00:00.250Z", **values})
    made = read_line(text, 2 * step)
    assert made is not None
    return made


@dataclasses.dataclass
class Info:
    create_time: str = "2026-01-31T12:00:00Z"


class FakeJob:
    short_name, name, state, config = "a", "jobs/a", "succeeded", {"optimizer": {"lr": 0.5}}

    def info(self) -> Info:
        return Info()


class FakeClient:
    def __init__(self, lines: list[meshloom.MetricsLine]) -> None:
        self._lines = lines

    def follow_metrics(self, job: object) -> list[meshloom.MetricsLine]:
        return self._lines


class FakeTracker:
    def __init__(self, have: int = -1) -> None:
        self.have, self.rows, self.ended = have, [], False

    def last_step(self) -> int:
        return self.have

    def log(self, row: Row) -> None:
        self.rows.append(row)

    def end(self, job: object) -> None:
        self.ended = True


class CourseTest(unittest.TestCase):
    def test_lines_tell_what_is_not_finite(self) -> None:
        made = line(3, loss=None, grad_norm=None, mfu=None, not_finite="loss=inf,grad_norm=nan")
        self.assertEqual(made.values["loss"], math.inf)
        self.assertTrue(math.isnan(made.values["grad_norm"]))
        self.assertNotIn("mfu", made.values)
        self.assertIsNone(read_line("[]", 1))
        self.assertIsNone(read_line('{"step": "1"}', 1))

    def test_names_are_those_of_tensorboard(self) -> None:
        expected = {"loss": "train/loss", "seconds_forward": "seconds/forward", "validation_loss_per_byte":
                    "validation_per_byte/loss", "validation_bits_per_byte": "validation/bits_per_byte",
                    "perplexity_x": "validation_x/perplexity", "elapsed": None, "lost_seconds_queue": "lost_seconds/queue"}
        self.assertEqual({name: shown_name(name) for name in expected}, expected)

    def test_a_validation_travels_with_its_step(self) -> None:
        rows = list(rows_of([line(0, validation_loss=4.0), line(1, loss=3.0), line(2, loss=2.0),
                             line(2, validation_loss=2.5)]))
        self.assertEqual([(row.step, sorted(row.values)) for row in rows],
                         [(0, ["validation/loss"]), (1, ["train/loss"]), (2, ["train/loss", "validation/loss"])])

    def test_steps_that_an_edit_has_changed_stand_beside_the_first(self) -> None:
        rows = list(rows_of([line(1, loss=3.0), line(2, loss=2.0), line(2, 2, loss=2.5), line(3, 2, loss=1.0)]))
        self.assertEqual([(row.step, row.again) for row in rows], [(1, ""), (2, ""), (2, "attempt_2"), (3, "")])

    def test_it_goes_on_behind_what_the_tracker_has(self) -> None:
        tracker = FakeTracker(have=2)
        send(FakeClient([line(step, loss=1.0) for step in range(1, 5)]), FakeJob(), tracker)
        self.assertEqual([row.step for row in tracker.rows], [3, 4])
        self.assertTrue(tracker.ended)

    def test_a_run_is_named_by_the_jobs_creation(self) -> None:
        self.assertEqual(run_name(FakeJob()), "a-20260131120000")


class FakeWandb(types.ModuleType):
    """The calls of wandb that are used. As wandb does, it drops a row whose step is smaller than one before."""

    def __init__(self, starting_step: int = 0) -> None:
        super().__init__("wandb")
        self.starting_step, self.step, self.dropped = starting_step, starting_step, 0
        self.rows: dict[int, dict[str, float]] = {}
        self.summary: dict[str, str] = {}
        self.defined: list[str] = []
        self.arguments: dict[str, object] = {}
        self.exit_code: int | None = None

    def init(self, **arguments: object) -> "FakeWandb":
        self.arguments = arguments
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        if step < self.step:
            self.dropped += 1
            return
        self.step = step
        self.rows.setdefault(step, {}).update(values)

    def define_metric(self, name: str, step_metric: str) -> None:
        self.defined.append(f"{name} over {step_metric}")

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


@contextlib.contextmanager
def stand_in(module: FakeWandb):
    before = sys.modules.get("wandb")
    sys.modules["wandb"] = module
    sys.modules.pop("meshloom.tracking.wandb", None)
    try:
        yield importlib.import_module("meshloom.tracking.wandb").WandbRun
    finally:
        sys.modules.pop("meshloom.tracking.wandb", None)
        sys.modules.pop("wandb")
        if before is not None:
            sys.modules["wandb"] = before


class WandbTest(unittest.TestCase):
    def test_a_resumed_run_goes_on_and_no_row_is_dropped(self) -> None:
        server = FakeWandb(starting_step=3)  # it has steps up to 2
        lines = [line(step, loss=float(step)) for step in range(1, 5)]
        lines += [line(step, 2, loss=10.0 + step) for step in range(3, 8)]  # 3 and 4 are told again
        with stand_in(server) as wandb_run:
            send(FakeClient(lines), FakeJob(), wandb_run(FakeJob(), "project"))
        self.assertEqual(server.dropped, 0)
        self.assertEqual([server.rows[step]["train/loss"] for step in range(3, 8)], [3.0, 4.0, 15.0, 16.0, 17.0])
        again = {row["attempt_2/step"]: row["attempt_2/train/loss"] for row in server.rows.values() if "attempt_2/step" in row}
        self.assertEqual(again, {3: 13.0, 4: 14.0})
        self.assertEqual(server.defined, ["attempt_2/* over attempt_2/step"])
        self.assertEqual((server.exit_code, server.summary), (0, {"state": "succeeded"}))
        self.assertEqual((server.arguments["id"], server.arguments["resume"]), ("a-20260131120000", "allow"))

    def test_what_is_told_again_at_the_end_is_sent(self) -> None:
        server = FakeWandb()
        lines = [line(1, loss=1.0), line(2, loss=2.0), line(1, 2, loss=3.0), line(2, 2, loss=4.0)]
        with stand_in(server) as wandb_run:
            send(FakeClient(lines), FakeJob(), wandb_run(FakeJob(), "project"))
        self.assertEqual([row["attempt_2/step"] for row in server.rows.values() if "attempt_2/step" in row], [1, 2])


@unittest.skipUnless("MESHLOOM_ADDRESS" in os.environ, "no daemon")
class RealPackagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.client = meshloom.Client()
        cls.addClassCleanup(cls.client.close)
        cls.job = cls.client.submit(JOB).wait(60, progress=False)

    def test_lines_are_the_metrics_and_go_on_behind_a_revision(self) -> None:
        lines = list(self.client.follow_metrics(self.job))
        losses = [made.values["loss"] for made in lines if not made.is_validation]
        self.assertEqual(losses, self.job.metrics()["loss"].tolist())
        rest = list(self.client.follow_metrics(self.job.name, after=lines[3].revision))
        self.assertEqual(rest, lines[4:])

    def test_wandb_offline_has_what_was_measured(self) -> None:
        try:
            importlib.import_module("wandb")
        except ImportError:
            self.skipTest("no wandb")
        from wandb.proto import wandb_internal_pb2
        from wandb.sdk.internal import datastore

        from meshloom.tracking.wandb import WandbRun
        with tempfile.TemporaryDirectory() as folder:
            os.environ.update(WANDB_DIR=folder, WANDB_SILENT="true")
            send(self.client, self.job, WandbRun(self.job, "project", mode="offline"))
            [file] = pathlib.Path(folder).glob("wandb/offline-run-*/*.wandb")
            store = datastore.DataStore()
            store.open_for_scan(str(file))
            losses = {}
            while (data := store.scan_data()) is not None:
                record = wandb_internal_pb2.Record()
                record.ParseFromString(data)
                if record.WhichOneof("record_type") != "history":
                    continue
                row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
                if "train/loss" in row:
                    losses[int(row["_step"])] = row["train/loss"]
        metrics = self.job.metrics()
        self.assertEqual(losses, dict(zip(metrics["step"].tolist(), metrics["loss"].tolist())))

    def test_mlflow_has_what_was_measured_once(self) -> None:
        try:
            importlib.import_module("mlflow")
        except ImportError:
            self.skipTest("no mlflow")
        from mlflow.tracking import MlflowClient

        from meshloom.tracking.mlflow import MlflowRun
        with tempfile.TemporaryDirectory() as folder:
            uri = f"sqlite:///{folder}/mlflow.db"
            for _ in range(2):  # the second finds the run, and has nothing to send
                run = MlflowRun(self.job, "experiment", uri)
                send(self.client, self.job, run)
            history = MlflowClient(uri).get_metric_history(run.run_id, "train/loss")
            params = MlflowClient(uri).get_run(run.run_id).data.params
        metrics = self.job.metrics()
        self.assertEqual([(item.step, item.value) for item in history],
                         list(zip(metrics["step"].tolist(), metrics["loss"].tolist())))
        self.assertEqual(params["optimizer.lr"], "0.003")


if __name__ == "__main__":
    unittest.main()
