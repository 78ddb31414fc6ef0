# SPDX-License-Identifier: Apache-2.0
"""Supervised fine-tuning of a Hugging Face folder, with tensor parallelism where there are two ranks.

Usage: supervised.py FOLDER TEXT [STEPS]
FOLDER and TEXT are here, the daemon may be elsewhere. The model is one of 256 bytes.
"""

import sys

import numpy as np

import meshloom

SEQ_LEN, BATCH = 64, 8


def batches(path: str, steps: int) -> list[list[meshloom.Datum]]:
    """Random windows; every byte is to be followed by the next one."""
    text = np.fromfile(path, np.uint8)
    starts = np.random.default_rng(0).integers(0, len(text) - SEQ_LEN - 1, (steps, BATCH))
    return [[meshloom.Datum.next_token(text[i : i + SEQ_LEN + 1]) for i in row] for row in starts]


def tune(run: meshloom.TrainingRun, data: list[list[meshloom.Datum]]) -> None:
    before = run.forward(data[-1])
    # Verbs run in the order of the calls; nothing here waits, so the ranks never do.
    losses = []
    for step, batch in enumerate(data):
        losses.append(run.forward_backward(batch, reduction="token_mean"))
        run.optim_step(lr=1e-3 * min(1.0, (step + 1) / 10), grad_clip_norm=1.0)
    after = run.forward(data[-1])
    for step, future in enumerate(losses):
        if step % 10 == 0:
            print(f"step {step}: loss {future.result().loss:.4f}")
    print(f"last batch: {before.result().loss:.4f} before, {after.result().loss:.4f} after")
    state = run.save_state("tuned").result()
    print(f"saved as {state.name} at step {state.step}; weights in {run.save_weights('tuned').result().folder}")


def main(folder: str, text: str, steps: int) -> None:
    with meshloom.Client() as client:
        model = client.create_model("supervised-base", folder).result()  # what was sent before is not sent again
        print(f"{model.name}: {model.architecture}, {model.parameters} parameters, {model.size_bytes} bytes")
        config = {"model": {"name": model.name}, "mesh": {"tp": min(client.ranks, 2)}, "plan": {"dtype": "float32"},
                  "training": {"seq_len": SEQ_LEN, "micro_batch_size": 4}, "optimizer": {"type": "adamw", "lr": 1e-3}}
        try:
            with client.create_training_run(config) as run:
                tune(run, batches(text, steps))
        finally:
            client.delete_model(model.name)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 60)
