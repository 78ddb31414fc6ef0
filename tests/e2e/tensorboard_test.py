#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: tensorboard_test.py FOLDER

Trains a job with the programs in FOLDER, stops the daemon on the way and goes on, and opens what lies in the job's
folder, and what `meshloom job tensorboard` writes, with TensorBoard itself: each step once, with the values of
metrics.jsonl in float32, texts, and the config as hyperparameters. Exits 77 where TensorBoard or mpirun are not there;
MESHLOOM_TEST_TENSORBOARD names a Python that has it.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

try:
    import numpy as np
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata as hparams_metadata
except ImportError:
    other = os.environ.pop("MESHLOOM_TEST_TENSORBOARD", "")
    if other:
        os.execv(other, [other, "-B", *sys.argv])
    print("SKIP: there is no tensorboard; MESHLOOM_TEST_TENSORBOARD names a Python that has it")
    sys.exit(77)

JOB = """run:
  model: {preset: byte_gpt_tiny}
  plan: {dtype: float32}
  training: {steps: 300, seq_len: 32, global_batch_size: 4}
  optimizer: {lr: 3.0e-3}
  data: {path: text.txt}
  validation: {interval: 50, steps: 1, sets: [{name: books, path: text.txt}]}
  checkpoint: {interval: 50}
  sample: {prompt: "the quick", interval: 100, params: {max_tokens: 8, seed: 1}}
"""
STEP_TAGS = {"loss": "train/loss", "grad_norm": "train/grad_norm", "lr": "train/lr", "memory_bytes": "memory/bytes",
             "tokens_per_second": "speed/tokens_per_second", "goodput": "speed/goodput", "seconds_forward": "seconds/forward"}
VALIDATION_TAGS = {"validation_loss": "validation/loss", "validation_loss_books": "validation_books/loss"}


class Daemon:
    def __init__(self, programs, work):
        self.programs, self.work = programs, work
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "XDG_STATE_HOME": str(work / "xdg")}
        self.environment.pop("MESHLOOM_ADDRESS", None)

    def run(self, *arguments, expected=0):
        result = subprocess.run([str(self.programs / "meshloom"), "--state-dir", str(self.work / "state"), *arguments],
                                cwd=self.work, env=self.environment, capture_output=True, text=True, timeout=120,
                                stdin=subprocess.DEVNULL, check=False)
        if result.returncode != expected:
            sys.exit(f"meshloom {' '.join(arguments)}: {result.returncode}\n{result.stdout}{result.stderr}")
        return result.stdout

    def up(self):
        self.run("up", "-n", "2", "--listen", "127.0.0.1:0", "--data-dir", str(self.work))


def check_scalars(accumulator, lines, tags, where):
    for key, tag in tags.items():
        expected = [(line["step"], np.float32(line[key])) for line in lines if key in line]
        shown = [(event.step, np.float32(event.value)) for event in accumulator.Scalars(tag)]
        if shown != expected or not expected:
            sys.exit(f"{where}, {tag}: TensorBoard shows {len(shown)} values, metrics.jsonl has {len(expected)}: "
                     f"{[pair for pair in zip(shown, expected) if pair[0] != pair[1]][:3]}")


def text_of(accumulator, tag):
    return [bytes(event.tensor_proto.string_val[0]).decode() for event in accumulator.Tensors(tag)]


def check_folder(folder, lines, where):
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    check_scalars(accumulator, [line for line in lines if "loss" in line], STEP_TAGS, where)
    check_scalars(accumulator, [line for line in lines if "validation_loss" in line], VALIDATION_TAGS, where)
    config = text_of(accumulator, "config")[0]
    if "preset: byte_gpt_tiny" not in config or not text_of(accumulator, "plan"):
        sys.exit(f"{where}: config or plan is missing: {config}")
    if not all(sample.startswith("    the quick") for sample in text_of(accumulator, "samples/1")):
        sys.exit(f"{where}: samples are wrong")
    content = accumulator.SummaryMetadata(hparams_metadata.SESSION_START_INFO_TAG).plugin_data.content
    start = hparams_metadata.parse_session_start_info_plugin_data(content)
    if abs(start.hparams["optimizer.lr"].number_value - 3e-3) > 1e-12:
        sys.exit(f"{where}: hyperparameters are wrong: {start}")
    content = accumulator.SummaryMetadata(hparams_metadata.SESSION_END_INFO_TAG).plugin_data.content
    if hparams_metadata.parse_session_end_info_plugin_data(content).status != 1:
        sys.exit(f"{where}: it has not ended with success")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if shutil.which("mpirun") is None:
        print("SKIP: there is no mpirun")
        return 77
    with tempfile.TemporaryDirectory(prefix="meshloom tensorboard ") as folder:
        work = pathlib.Path(folder)
        (work / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 2000, encoding="utf-8")
        (work / "job.yaml").write_text(JOB, encoding="utf-8")
        daemon = Daemon(pathlib.Path(sys.argv[1]).resolve(), work)
        try:
            daemon.up()
            daemon.run("job", "submit", "job.yaml", "--name", "a")
            daemon.run("job", "wait", "a", "--for", "step:120", "--timeout", "60")
            daemon.run("down", "--force")
            daemon.up()
            daemon.run("job", "wait", "a", "--timeout", "60")
            daemon.run("job", "tensorboard", "a", "--out", "copy")
            lines = [json.loads(line) for line in (work / "state/jobs/a/metrics.jsonl").read_text(encoding="utf-8").splitlines()]
            begin = time.monotonic()
            check_folder(work / "state/jobs/a/tensorboard", lines, "the job's folder")
            check_folder(work / "copy/a", lines, "the copy")
            print(f"{len(lines)} lines, twice the same in TensorBoard, {time.monotonic() - begin:.1f} s")
        finally:
            daemon.run("down", "--force")
    return 0


if __name__ == "__main__":
    sys.exit(main())
