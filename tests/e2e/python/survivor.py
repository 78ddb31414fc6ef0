# SPDX-License-Identifier: Apache-2.0
"""Usage: survivor.py FILE

A training loop that outlives its daemon: says "kill the daemon" and waits for FILE, which says that it was started
again. Ends with the weights of a loop that nothing has disturbed, or exits with 1.
"""

import pathlib
import sys
import tempfile
import time

import numpy as np

import meshloom

STEPS = 6
CONFIG = {"model": {"preset": "byte_gpt_tiny"}, "mesh": {"fsdp": 2}, "plan": {"dtype": "float32"},
          "training": {"seq_len": 32, "seed": 5, "micro_batch_size": 2}, "optimizer": {"type": "adamw", "lr": 3e-3}}


def batch(step: int) -> list[meshloom.Datum]:
    random = np.random.default_rng(step)
    return [meshloom.Datum.next_token(random.integers(0, 256, random.integers(5, 32))) for _ in range(5)]


def train(run: meshloom.TrainingRun, begin: int, end: int) -> None:
    for step in range(begin, end):
        run.forward_backward(batch(step))
        run.optim_step().result()


def weights(run: meshloom.TrainingRun) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        copy = run.save_weights("end").result().download(pathlib.Path(folder) / "copy")
        return (copy / "model.safetensors").read_bytes()


def main(restarted: pathlib.Path) -> None:
    with meshloom.Client(retry_seconds=60) as client:
        with client.create_training_run(CONFIG) as run:
            train(run, 0, STEPS)
            undisturbed = weights(run)
        with client.create_training_run(CONFIG) as run:
            train(run, 0, 3)
            saved = run.save_state("three").result()
            train(run, 3, 4)
            print("kill the daemon", flush=True)
            while not restarted.exists():
                time.sleep(0.05)
            try:
                train(run, 4, STEPS)
                sys.exit("nothing was lost")
            except meshloom.RunRecovered as error:
                assert (error.state, error.step) == (saved.name, 3), error.metadata
            state = run.recover()
            assert state == saved, state
            train(run, state.step, STEPS)
            assert len(undisturbed) > 1000 and weights(run) == undisturbed, "the weights differ"
    print("the same weights")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
