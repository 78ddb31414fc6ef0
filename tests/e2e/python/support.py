# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share: a client with a run of a tiny model."""

import unittest

import numpy as np

import meshloom

CONFIG = {"model": {"preset": "byte_gpt_tiny"}, "plan": {"dtype": "float32"},
          "training": {"seq_len": 128, "seed": 3, "micro_batch_size": 8}, "optimizer": {"type": "sgd", "lr": 0.1}}
TEXT = b"in the beginning was the word and the word was light"


def data(count: int = 3, length: int = 20) -> list[meshloom.Datum]:
    text = np.frombuffer(TEXT, np.uint8)
    return [meshloom.Datum.next_token(np.resize(np.roll(text, -5 * i), length + 1)) for i in range(count)]


class RunTestCase(unittest.TestCase):
    def setUp(self) -> None:
        self.client = meshloom.Client(name="package-test")
        self.addCleanup(self.client.close)
        self.run_ = self.make()

    def make(self, **fields) -> meshloom.TrainingRun:
        run = self.client.create_training_run(fields.pop("config", CONFIG), **fields)
        self.addCleanup(run.close)
        return run
