# SPDX-License-Identifier: Apache-2.0
"""Jobs in Python, against a real daemon at MESHLOOM_ADDRESS."""

import concurrent.futures
import math
import os
import pathlib
import tempfile
import time
import unittest

import numpy as np

import meshloom

YAML = """
run:
  model: {preset: byte_gpt_tiny}
  plan: {dtype: float32}
  training: {steps: 8, seq_len: 32, global_batch_size: 8}
  optimizer: {lr: 3e-3}
  data: {path: text.txt}
  validation: {interval: 4, steps: 1}
  checkpoint: {interval: 4}
"""
JOB = {"run": {"model": {"preset": "byte_gpt_tiny"}, "plan": {"dtype": "float32"},
               "training": {"steps": 8, "seq_len": 32, "global_batch_size": 8}, "optimizer": {"lr": 3e-3},
               "data": {"path": "text.txt"}, "validation": {"interval": 4, "steps": 1}, "checkpoint": {"interval": 4}}}
ENDLESS = {"run.training.steps": 1_000_000, "run.validation.interval": 0, "run.checkpoint.interval": 0}


class JobsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.client = meshloom.Client(name="jobs-test")
        cls.addClassCleanup(cls.client.close)
        cls.done = cls.client.submit(JOB, labels={"kind": "done"}).wait(60, progress=False)

    def endless(self, **fields) -> meshloom.Job:
        job = self.client.submit(JOB, changes={**ENDLESS, **fields})
        self.addCleanup(lambda: None if job.ended else job.cancel())
        return job

    def reach(self, job: meshloom.Job, state: str) -> None:
        end = time.monotonic() + 30
        while job.state != state:
            self.assertLess(time.monotonic(), end, job)
            time.sleep(0.02)

    def test_all_ways_of_giving_a_job_are_the_same_job(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "job.yaml"
            path.write_text(YAML, encoding="utf-8")
            given = [self.client.check(way).job.resolved for way in (JOB, YAML, path, str(path))]
        for other in given[1:]:
            self.assertEqual(other, given[0])
        numpy = {"run": {**JOB["run"], "training": {**JOB["run"]["training"], "steps": np.int64(8)}}}
        self.assertEqual(self.client.check(numpy).job.resolved, given[0])
        changed = self.client.check(JOB, changes={"training.steps": np.int64(9), "step_limit": 5}).job
        self.assertEqual((changed.resolved.training.steps, changed.spec.step_limit), (9, 5))
        drawn = {"run": {**JOB["run"], "sample": {"prompts": ["a", "b"]}}}
        several = {"training": {"steps": 9}, "training.seed": 4, "run.sample.prompts": ["c"]}
        resolved = self.client.check(drawn, changes=several).job.resolved
        self.assertEqual((resolved.training.steps, resolved.training.seed), (9, 4))
        self.assertEqual(list(resolved.sample.prompts), ["c"], "a list takes the place of the file's")
        self.assertEqual(several["training"], {"steps": 9}, "what was given stays as it is")

    def test_mistakes_are_told_with_their_place(self) -> None:
        wrong = (({"run": {"optimizer": {"learning_rate": 1}}}, "run.optimizer.lr"),
                 ({"run": {"trainin": {}}}, 'did you mean "training"'),
                 ({"run": {"training": {"steps": "8"}}}, "expected a whole number"),
                 (YAML.replace("steps: 8", "steps: eight"), "job:5: run.training.steps"),
                 (YAML.replace("steps: 8", "steps: 0"), "job:5: run.training.steps"),
                 ("no_such_file.yaml", "no_such_file.yaml: No such file"))
        for job, text in wrong:
            with self.subTest(text), self.assertRaises(meshloom.InvalidArgument) as caught:
                self.client.submit(job)
            self.assertIn(text, str(caught.exception))
        for job in ({"run": {"model": object()}}, {"run": {"model": float("nan")}}, 3.5):
            with self.assertRaises((meshloom.InvalidArgument, TypeError)):
                self.client.submit(job)
        for changes, text in (({"training.stepps": 3}, 'did you mean "steps"'),
                              ({"learning_rate": 1}, "here it is run.optimizer.lr"),
                              ({"optimizer": {"learning_rate": 1}}, "here it is run.optimizer.lr")):
            with self.subTest(text), self.assertRaises(meshloom.InvalidArgument) as caught:
                self.client.submit(JOB, changes=changes)
            self.assertIn(text, str(caught.exception))
        with self.assertRaisesRegex(meshloom.InvalidArgument, "here it is run.optimizer.lr"):
            self.client.create_training_run({"optimizer": {"learning_rate": 1}})

    def test_what_an_ended_job_tells(self) -> None:
        job = self.done
        self.assertEqual((job.state, job.step, job.steps, job.ended, job.error), ("succeeded", 8, 8, True, None))
        metrics = job.metrics()
        self.assertEqual(metrics["step"].tolist(), list(range(1, 9)))
        self.assertEqual(metrics["loss"][-1], job.loss)
        self.assertEqual(metrics.validation["step"].tolist()[-1], 8)
        self.assertEqual(metrics.validation["validation_loss"][-1], job.validation_loss)
        self.assertAlmostEqual(job.bits_per_byte, job.loss / math.log(2), places=5)
        self.assertEqual(job.config["training"]["steps"], 8)
        self.assertEqual([event.kind for event in job.follow()], ["state"])
        self.assertGreater(len(list(job.logs())), 0)
        self.assertRegex(repr(job), r"<Job jobs/\S+: succeeded, step 8/8, loss \d\.\d{4}")
        self.assertIn("<polyline", job._repr_html_())
        self.assertIn("loss by step", str(job.plot()))
        self.assertIn(job, self.client.jobs(labels={"kind": "done"}))
        self.assertEqual(self.client.job(job.short_name), job)

    def test_following_tells_every_step_once(self) -> None:
        job = self.client.submit(JOB)
        events = list(job.follow())
        steps = [event.step for event in events if event.kind == "step"]
        self.assertEqual(steps, sorted(set(steps)))
        self.assertEqual(steps[-1], 8)
        losses = job.metrics().curve("loss")
        self.assertTrue(all(losses[event.step] == event.loss for event in events if event.kind == "step"))
        self.assertEqual([event.state for event in events if event.kind == "state"][-1], "succeeded")
        np.testing.assert_array_equal(job.metrics()["loss"], self.done.metrics()["loss"])
        compared = job.compare(self.done)
        self.assertEqual((compared.fields, list(compared.losses)), ({}, list(range(1, 9))))
        self.assertEqual(list(compared.bits_per_byte), list(range(1, 9)))
        other = self.client.submit(JOB, changes={"optimizer.lr": 1e-3}).wait(60, progress=False)
        self.assertEqual(self.client.compare(job, other.name).fields, {"optimizer.lr": (3e-3, 1e-3)})

    def test_a_job_is_steered(self) -> None:
        job = self.endless()
        self.reach(job, "running")
        with self.assertRaises(TimeoutError):
            job.wait(0.2, progress=False)
        self.reach(job.pause(), "paused")
        self.assertEqual(job.resume().name, job.name)
        self.reach(job, "running")
        with self.assertRaisesRegex(meshloom.InvalidArgument, "did you mean"):
            job.edit({"training.stepz": 5})
        with self.assertRaisesRegex(meshloom.InvalidArgument, "here it is run.optimizer.lr"):
            job.edit({"learning_rate": 1e-4})
        self.assertEqual(job.edit({"optimizer.lr": 1e-4}).info().resolved.optimizer.lr, 1e-4)
        last = job.edit(steps=job.step + 200_000).steps
        self.assertLess(last, 1_000_000)
        self.assertEqual(job.label(team="a").info().spec.labels["team"], "a")
        job.cancel()
        with self.assertRaises(meshloom.Cancelled):
            job.wait(30, progress=False)
        job.delete()
        with self.assertRaises(meshloom.NotFound):
            self.client.job(job.name)

    def test_a_job_that_fails_raises_its_error(self) -> None:
        job = self.client.submit(JOB, changes={"debug.fail_step": 2, "debug.fail_rank": 0})
        with self.assertRaises(meshloom.MeshloomError) as caught:
            job.wait(60, progress=False)
        self.assertEqual((job.state, job.error.reason), ("failed", caught.exception.reason))

    def test_text_is_drawn_at_once_and_piece_by_piece(self) -> None:
        drawn = self.done.generate("in the", max_tokens=12, seed=3, temperature=1.0)
        self.assertEqual(len(drawn[0].tokens), 12)
        pieces = list(self.done.generate("in the", max_tokens=12, seed=3, temperature=1.0, stream=True))
        self.assertEqual("".join(piece.text for piece in pieces), drawn.text)
        self.assertEqual([piece.token for piece in pieces], [*drawn[0].tokens.tolist(), None])
        self.assertEqual((pieces[-1].finish_reason, drawn[0].seed), ("length", 3))
        many = self.client.generate(self.done, ["a", np.frombuffer(b"bc", np.uint8)], samples=2, max_tokens=3)
        self.assertEqual(len(many), 4)
        self.assertEqual(len({item.seed for item in many}), 4)
        seeds = {self.done.generate("a", max_tokens=1)[0].seed for _ in range(2)}
        self.assertEqual(len(seeds), 2, "another one each time")
        with self.assertRaises(meshloom.NotFound):
            self.client.generate("jobs/nobody", "a")
        with self.assertRaises(meshloom.InvalidArgument):
            self.client.generate(7, "a")
        for _ in self.done.generate("a", max_tokens=5000, past_context=True, ignore_eos=True, stream=True):
            break  # whoever leaves ends it

    def test_weights_are_evaluated_exported_and_downloaded(self) -> None:
        whole = self.done.evaluate()
        self.assertAlmostEqual(whole.perplexity, math.exp(whole.loss), places=6)
        self.assertAlmostEqual(whole.bits_per_byte, whole.loss / math.log(2), places=5)
        newest = [item for item in self.done.checkpoints() if item.name.endswith("/step-8")][0]
        told: list[int] = []
        again = self.client.evaluate(newest, progress=lambda tokens, loss: told.append(tokens))
        self.assertEqual((again.loss, again.source), (whole.loss, newest.name))
        exported = self.done.export(4, dtype="bfloat16")
        self.assertEqual((exported.step, exported.damage), (4, ""))
        with tempfile.TemporaryDirectory() as folder:
            copy = exported.download(pathlib.Path(folder) / "hf")
            self.assertIn("config.json", os.listdir(copy))
            with self.assertRaises(meshloom.InvalidArgument):
                exported.download(copy)
        exported.delete()
        self.assertNotIn(exported.name, [item.name for item in self.done.checkpoints()])

    def test_an_evaluation_says_whom_it_waits_behind(self) -> None:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            with self.client.create_training_run({"model": {"preset": "byte_gpt_tiny"}}) as run:
                run.wait_ready(30)
                with self.assertLogs("meshloom", "WARNING") as logged:
                    waiting = pool.submit(self.done.evaluate)
                    end = time.monotonic() + 30
                    while not logged.output and time.monotonic() < end:
                        time.sleep(0.02)
                self.assertIn(f"the evaluation waits for the ranks: behind {run.name}", logged.output[0])
                self.assertFalse(waiting.done())
            made = waiting.result(60)
        self.assertEqual(made.computed_tokens, made.tokens, "every token counts here")

    def test_a_file_becomes_data(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "my text.txt"
            name = f"imported-{os.getpid()}.txt"
            path.write_bytes(b"all is light " * 2000)
            made = self.client.import_upload(path, name)
            self.assertEqual((made.path, made.size_bytes), (name, 26000))
            with self.assertRaises(meshloom.AlreadyExists):
                self.client.import_upload(path, name)
            self.client.import_upload(path, name, overwrite=True)
            with self.assertRaises(meshloom.InvalidArgument):
                self.client.import_upload(pathlib.Path(folder) / "none", "none.txt")
            with self.assertRaises(meshloom.MeshloomError):
                self.client.import_upload(path, "../outside.txt")
        self.assertEqual(self.client.check(JOB, changes={"data.path": name}).job.resolved.data.path, name)

    def test_versions_are_the_same(self) -> None:
        self.assertEqual(self.client.version, meshloom.__version__)
        self.assertGreaterEqual(self.client.ranks, 1)


if __name__ == "__main__":
    unittest.main()
