#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: help_examples_test.py FOLDER

Copies the examples of every `meshloom ... --help` and runs them one after the other with the programs in FOLDER, in a
folder that has the files which they name, against a daemon that the first of them starts. Each ends with 0, or with the
refusal that stands here: where it needs what an example before it has used up. Exits 77 where mpirun is not there.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TIME_LIMIT = 120  # seconds of an example
MOST_FOLLOWED = 6  # seconds of a --follow or a --watch, which Ctrl-C leaves then
JOB = """run:
  model: {preset: byte_gpt_tiny}
  training: {steps: 500, seq_len: 32, global_batch_size: 4}
  data: {path: text.txt}
  checkpoint: {interval: 500}
  export: {hf_folder: hf}
"""
RUN = "name: my-run\nconfig: {model: {preset: byte_gpt_tiny}}\n"
BATCHES = {
    "batch.json": '{"data": [{"tokens": [1, 2, 3], "targets": [2, 3, 4]}]}',
    "rollouts.json": '{"data": [{"tokens": [1, 2, 3], "targets": [2, 3, 4], "logprobs": [-5, -5, -5], '
                     '"advantages": [1, 1, 1]}]}',
}

# What is done before an example, by how that begins.
BEFORE = {
    "meshloom status": ["meshloom job submit job.yaml --name job-1 --follow",
                        "meshloom job submit job.yaml --name job-2 --set training.steps=20 --follow",
                        "meshloom checkpoint download checkpoints/job-1/hf data/gpt2",
                        "cp -r data/gpt2 path/to/hf_folder", "cp -r data/gpt2 Llama-3.2-1B"],
    "meshloom upload corpus --data": ["rm -r data/corpus"],
    "meshloom run skip my-run 7": 2 * ["meshloom run forward my-run --data text.txt --samples 1"],
    "meshloom run heartbeat": ["export MESHLOOM_RUN_TOKEN=$(cat run.token)"],
}
# The exit code and a part of the refusal, by how an example begins.
REFUSED = {
    "meshloom job edit job-1": (1, "has ended"),
    "meshloom job resume job-1": (2, "give more steps"),
    "meshloom checkpoint delete": (1, "is the newest of its job"),
    "meshloom evaluate --hf-folder gpt2": (2, "longer than the model's context"),
    "meshloom data import uploads/upload-1": (1, "does not exist"),
}


def examples_of(meshloom, command=()):
    """Of a command and those below it, in the order of the manual."""
    text = subprocess.run([meshloom, *command, "--help"], capture_output=True, text=True, check=True).stdout
    found = [line[1] for line in re.finditer(r"^(?:Example: |  )(meshloom .*)$", text, re.M)]
    below = re.search(r"^Subcommands:\n((?:  .*\n?)+)", text, re.M)
    for name in re.findall(r"^  ([a-z-]+) ", below[1] if below else "", re.M):
        found += examples_of(meshloom, (*command, name))
    return list(dict.fromkeys(found))


class Shell:
    """Runs lines in one folder, each in a shell of its own; exported variables stay."""

    def __init__(self, work, programs):
        self.work = work
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "XDG_STATE_HOME": str(work / "xdg")}
        for name in ("MESHLOOM_ADDRESS", "MESHLOOM_STATE_DIR", "MESHLOOM_RUN_TOKEN"):
            self.environment.pop(name, None)

    def run(self, line, whole=False):
        """`whole`: a --follow or a --watch is waited for, and not left after some seconds."""
        if line.startswith("export "):
            name, value = line.removeprefix("export ").split("=", 1)
            self.environment[name] = self.run(f"printf %s {value}").stdout
            return None
        if not whole and ("--follow" in line or "--watch" in line):
            line = f"timeout --signal=INT {MOST_FOLLOWED} {line}"
        return subprocess.run(["bash", "-c", line], cwd=self.work, env=self.environment, capture_output=True, text=True,
                              errors="replace", stdin=subprocess.DEVNULL, timeout=TIME_LIMIT, check=False)


def make_files(work):
    for folder in ("data", "corpus", "path/to"):
        (work / folder).mkdir(parents=True)
    text = "the quick brown fox jumps over the lazy dog. " * 2000
    for name in ("data/text.txt", "text.txt", "corpus.txt", "corpus/a.txt", "data/corpus/a.txt"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(text)
    shutil.copy(work / "text.txt", work / "data/bible.txt")
    (work / "tokens.bin").write_bytes(bytes(2000))
    (work / "job.yaml").write_text(JOB)
    (work / "run.yaml").write_text(RUN)
    for name, batch in BATCHES.items():
        (work / name).write_text(batch)
    (work / "configs").symlink_to(REPOSITORY / "configs")


def end_jobs(shell):
    """Those that a --follow has left."""
    for name in re.findall(r'"name": "jobs/([^"]+)"', shell.run("meshloom job list --json").stdout):
        shell.run(f"meshloom job cancel {name}")


def expect(example, result):
    """What is wrong with it, or nothing."""
    left = ("--follow" in example or "--watch" in example) and result.returncode in (124, 130)
    for begin, (code, text) in REFUSED.items():
        if example.startswith(begin):
            return "" if result.returncode == code and text in result.stderr else "another refusal"
    return "" if result.returncode == 0 or left else "it fails"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    programs = pathlib.Path(sys.argv[1]).resolve()
    if shutil.which("mpirun") is None:
        print("SKIP: there is no mpirun")
        return 77
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="meshloom examples ") as folder:
        work = pathlib.Path(folder)
        make_files(work)
        shell = Shell(work, programs)
        examples = examples_of(programs / "meshloom")
        # What ends something comes last.
        for end in ("meshloom run close my-run --force", "meshloom down"):
            examples.append(examples.pop(examples.index(end)))
        try:
            for example in examples:
                if "|" in example and shutil.which(example.split("|")[1].split()[0]) is None:
                    print(f"not run, since there is no such program: {example}")
                    continue
                for begin in [one for one in BEFORE if example.startswith(one)]:
                    for line in BEFORE.pop(begin):
                        made = shell.run(line, whole=True)
                        if made and made.returncode != 0:
                            sys.exit(f"{line}\n{made.stdout}{made.stderr}")
                result = shell.run(example)
                if example.endswith("--follow"):
                    end_jobs(shell)
                if problem := expect(example, result):
                    wrong += 1
                    print(f"{example}\n  {problem}, exit code {result.returncode}:\n{result.stderr[-600:]}", flush=True)
        finally:
            shell.run("meshloom down --force")
    print(f"{len(examples)} examples, {wrong} wrong")
    return 1 if wrong or len(examples) < 50 else 0


if __name__ == "__main__":
    sys.exit(main())
