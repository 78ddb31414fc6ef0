# SPDX-License-Identifier: Apache-2.0
"""A whole training in Python: a text of this machine, a job on it, its curve, a sample, and a Hugging Face folder.

Usage: train_job.py TEXT FOLDER [STEPS]
TEXT is here, the daemon may be elsewhere. FOLDER is made, and holds the trained model in the end.
"""

import pathlib
import sys

import meshloom


def job_on(path: str, steps: int) -> dict:
    """Spelled as a job file."""
    return {"run": {"model": {"preset": "byte_gpt_tiny"},
                    "training": {"steps": steps, "seq_len": 64, "global_batch_size": 16},
                    "optimizer": {"lr": 3e-3}, "validation": {"interval": max(steps // 4, 1), "steps": 2},
                    "data": {"path": path}}}


def main(text: str, folder: str, steps: int) -> None:
    with meshloom.Client() as client:
        data = client.import_upload(text, pathlib.Path(text).name, overwrite=True)
        job = client.submit(job_on(data.path, steps), labels={"example": "train_job"})
        job.wait()  # with a line of progress; `for event in job.follow()` is for a program
        print(job)
        print(job.plot())
        best = job.metrics().validation["validation_loss"].min()
        print(f"best validation loss {best:.4f}, at the end over all validation data {job.evaluate().loss:.4f}")
        print("it writes: ", end="")
        for piece in job.generate("The ", max_tokens=60, stream=True):
            print(piece, end="", flush=True)
        print(f"\n{job.export().download(folder)} is for transformers")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 200)
