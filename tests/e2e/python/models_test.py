# SPDX-License-Identifier: Apache-2.0
"""Models and plans of the Python package, against a real daemon on two ranks at MESHLOOM_ADDRESS."""

import asyncio
import itertools
import os
import pathlib
import shutil
import tempfile
import unittest
import unittest.mock

import grpc

import meshloom
from meshloom import uploads
from support import CONFIG, data

WEIGHTS = "model.safetensors"


class ModelsTest(unittest.TestCase):
    folder: pathlib.Path

    @classmethod
    def setUpClass(cls) -> None:
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        with meshloom.Client() as client, client.create_training_run(CONFIG) as run:
            cls.loss = run.forward(data()).result().loss
            run.save_weights("w").result().download(cls.folder / "hf")

    def setUp(self) -> None:
        self.client = meshloom.Client()
        self.addCleanup(self.client.close)
        self.addCleanup(self.delete_all)

    def delete_all(self) -> None:
        with meshloom.Client() as client:
            for model in client.list_models():
                client.delete_model(model.name)

    def variant(self, name: str) -> pathlib.Path:
        """The folder with weights of its own, which the daemon has not had before."""
        copy = self.folder / name
        shutil.copytree(self.folder / "hf", copy)
        with (copy / WEIGHTS).open("r+b") as file:
            file.seek(-64, 2)
            file.write(os.urandom(64))
        return copy

    def test_a_folder_becomes_a_model_that_runs_train_from(self) -> None:
        told: list[tuple[str, int, int]] = []
        (self.folder / "hf" / "notes.md").write_text("not of the model")
        future = self.client.create_model("mine", self.folder / "hf", progress=lambda *args: told.append(args))
        model = future.result(60)
        self.assertEqual((model.name, model.architecture, model.has_weights), ("models/mine", "gpt2", True))
        sizes = {path.name: path.stat().st_size for path in (self.folder / "hf").iterdir() if path.suffix != ".md"}
        self.assertEqual({file.name: file.size_bytes for file in model.files}, sizes)
        self.assertEqual({name: sent for name, sent, size in told if sent == size}, sizes)
        self.assertEqual(self.client.get_model("mine"), model)
        self.assertEqual([item.name for item in self.client.list_models()], [model.name])
        with self.client.create_training_run({**CONFIG, "model": {"name": model.name}}) as run:
            self.assertEqual(run.forward(data()).result().loss, self.loss)
            with self.assertRaises(meshloom.FailedPrecondition) as used:
                self.client.delete_model("mine")
            self.assertEqual(used.exception.reason, "MODEL_IN_USE")
        self.client.delete_model("mine")
        with self.assertRaises(meshloom.NotFound):
            self.client.get_model("mine")

    def test_the_same_bytes_are_taken_once(self) -> None:
        folder = self.variant("once")
        self.client.create_model("once", folder).result(60)
        told: list[tuple[str, int, int]] = []

        async def again() -> meshloom.Model:
            with meshloom.Client() as other:
                return await other.create_model("again", folder, progress=lambda *args: told.append(args))

        model = asyncio.run(again())
        self.assertEqual(model.files, self.client.get_model("once").files)
        self.assertEqual(sorted(told), sorted((name, size, size) for name, size, _ in model.files))

    def test_it_goes_on_after_breaks_from_what_is_there(self) -> None:
        connection = self.client._models._connection
        send_stream = connection.send_stream
        breaks = 0

        def breaking(method, requests, *rest):
            nonlocal breaks
            if breaks == 3:
                return send_stream(method, requests, *rest)
            breaks += 1
            send_stream(method, itertools.islice(requests, 5), *rest)
            raise meshloom.Unavailable("the connection is lost", grpc.StatusCode.UNAVAILABLE)

        sent: list[int] = []
        with unittest.mock.patch.object(connection, "send_stream", breaking), \
                unittest.mock.patch.object(uploads, "CHUNK", 10_000):
            self.client.create_model("broken", self.variant("breaks"),
                                     progress=lambda name, there, _: name == WEIGHTS and sent.append(there)).result(60)
        self.assertEqual(breaks, 3)
        self.assertEqual(sorted(set(sent)), sent)

    def test_another_process_goes_on(self) -> None:
        folder = self.variant("stopped")
        sent: list[int] = []

        def stopping(name: str, there: int, size: int) -> None:
            if name == WEIGHTS and there > size // 2:
                raise InterruptedError("half of it is enough")

        with unittest.mock.patch.object(uploads, "CHUNK", 10_000):
            with self.assertRaises(InterruptedError):
                self.client.create_model("halves", folder, progress=stopping).result(60)
            with meshloom.Client() as other:
                other.create_model("halves", folder,
                                   progress=lambda name, there, _: name == WEIGHTS and sent.append(there)).result(60)
        self.assertGreater(min(sent), (folder / WEIGHTS).stat().st_size // 2 - 10_000)

    def test_what_cannot_be_loaded_is_refused_before_its_weights_are_sent(self) -> None:
        folder = self.variant("refused")
        config = (folder / "config.json").read_text()
        (folder / "config.json").write_text(config.replace('"n_layer": 2', '"n_layer": 3'))
        told: list[tuple[str, int, int]] = []
        with self.assertRaises(meshloom.InvalidArgument) as caught:
            self.client.create_model("refused", folder, progress=lambda *args: told.append(args)).result(60)
        self.assertEqual(caught.exception.reason, "INVALID_HF_FOLDER")
        self.assertTrue(all(sent < size for name, sent, size in told if name == WEIGHTS))
        for wrong in (folder / "nothing", self.folder):
            with self.assertRaises(meshloom.InvalidArgument) as caught:
                self.client.create_model("wrong", wrong)
            self.assertEqual(caught.exception.field, "folder")
        self.assertEqual(self.client.list_models(), [])

    def test_a_name_that_is_taken(self) -> None:
        self.client.create_model("taken", self.folder / "hf").result(60)
        with self.assertRaises(meshloom.AlreadyExists):
            self.client.create_model("taken", self.folder / "hf").result(60)


class PlansTest(unittest.TestCase):
    def test_plans_are_kept_and_named_by_runs(self) -> None:
        with meshloom.Client() as client:
            plan = client.create_plan(CONFIG["model"], {"tp": 2}, {"dtype": "float32", "sequence_parallel": True})
            self.assertEqual((plan.mesh["tp"], plan.plan.sequence_parallel), (2, True))
            self.assertEqual(client.get_plan(plan.name), plan)
            self.assertIn(plan, client.list_plans())
            with client.create_training_run({**CONFIG, "plan": {"name": plan.name}}) as run:
                self.assertEqual(run.wait_ready(20).resolved.mesh.tp, 2)
                with self.assertRaises(meshloom.FailedPrecondition):
                    client.delete_plan(plan.name)
            client.delete_plan(plan.name)
            self.assertNotIn(plan, client.list_plans())
            with self.assertRaises(meshloom.FailedPrecondition) as ranks:
                client.create_plan(CONFIG["model"], {"tp": 3})
            self.assertEqual(ranks.exception.reason, "NEEDS_OTHER_RANKS")
            with self.assertRaises(meshloom.InvalidArgument) as unknown:
                client.create_plan(CONFIG["model"], {"pp": 2})
            self.assertEqual(unknown.exception.field, "query.mesh.pp")


if __name__ == "__main__":
    unittest.main()
