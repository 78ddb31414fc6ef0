#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: terminal_walk_test.py FOLDER

A new user's first commands in a terminal of 50, 80 and 120 columns (tmux), with the programs in FOLDER: a job is
followed while the terminal is resized, looked at, sampled and listed, then changed, compared, plotted, evaluated,
exported and deleted, with mistakes in between. Each command must end as it should and show what it is for, and the
screen must not be flooded. Exits 77 where tmux or mpirun is not there.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

WIDTHS = {50: 100, 80: 40, 120: 50}  # And what each is resized to while a job is followed.
TIME_LIMIT = 240  # of a command
JOB = """run:
  model: {preset: byte_gpt_1m}
  training: {steps: 40, seq_len: 64, global_batch_size: 2}
  data: {path: text.txt, validation_split: 0}
"""
# Lines of a command at most, wrapped at 80 columns: it shows a screen's worth, not one for each step.
MOST_LINES = 40


class Terminal:
    """A window of a tmux server of its own, with a shell in it."""

    def __init__(self, work, programs, address, width):
        self.socket = work / f"tmux-{width}"
        self.most_lines = MOST_LINES * max(80, width) // width
        self.commands = 0
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "MESHLOOM_ADDRESS": address,
                       "PS1": "$ ", "LC_ALL": "C.UTF-8"}
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", "40", "bash --norc --noprofile",
                  environment=environment)
        self.tmux("set-option", "-g", "history-limit", "20000")

    def tmux(self, *arguments, environment=None):
        return subprocess.run(["tmux", "-S", self.socket, *arguments], text=True, capture_output=True, check=True,
                              env=environment).stdout

    def resize(self, width):
        self.tmux("resize-window", "-x", str(width), "-y", "40")

    def lines(self):
        """All that was written, as it is wrapped now."""
        return self.tmux("capture-pane", "-p", "-S", "-").rstrip().splitlines()

    def text(self):
        """The same without the breaks of the terminal."""
        return self.tmux("capture-pane", "-p", "-J", "-S", "-")

    def wait_for(self, wanted):
        deadline = time.monotonic() + TIME_LIMIT
        while wanted not in self.text():
            if time.monotonic() > deadline:
                sys.exit(f"no {wanted!r} on the screen:\n{self.text()}")
            time.sleep(0.1)

    def run(self, command, expected, during=None, exit_code=0):
        """Runs it on an empty screen; `during` is a text on it and what is done then."""
        self.commands += 1  # The end of the command before stays on the screen until it is cleared.
        ended = f"ended {self.commands} with "
        self.tmux("clear-history")
        self.tmux("send-keys", "-l", f"clear; {command}; echo ended' '{self.commands}' 'with' '$?")
        self.tmux("send-keys", "Enter")
        if during:
            self.wait_for(during[0])
            during[1]()
        self.wait_for(ended)
        text, lines = self.text(), self.lines()
        faults = [f"no {word!r}" for word in expected if word not in text]
        if f"{ended}{exit_code}\n" not in text:
            faults.append(f"its exit code is not {exit_code}")
        if len(lines) > self.most_lines:
            faults.append(f"{len(lines)} lines, at most {self.most_lines}")
        if faults:
            sys.exit(f"{command}: {', '.join(faults)}:\n{text}")

    def close(self):
        self.tmux("kill-server")


def walk(terminal, number, width):
    job = f"job-{number}"
    terminal.run("meshloom status --wait 60", ["serving", "ready"])
    terminal.run("meshloom job submit job.yaml --follow",
                 ["byte_gpt_1m", "text.txt", "2 samples of 64 tokens", f"{job}: succeeded"],
                 during=("text.txt", lambda: terminal.resize(WIDTHS[width])))
    terminal.resize(width)
    terminal.run(f"meshloom job show {job}", ["byte_gpt_1m", "succeeded"])
    terminal.run(f"meshloom generate --job {job} --prompt Hello --max-tokens 8", ["Hello"])
    terminal.run(f"meshloom checkpoint list --job {job}", ["step-40"])


def walk_around(terminal, number):
    """What is there beside a job that has ended; `other` is the same with other settings."""
    job, other = f"job-{number}", f"other-{number}"
    terminal.run("meshloom plan estimate --model byte_gpt_1m --mesh dp=2", ["tokens per second", "all_reduce"])
    terminal.run("meshloom plan attention --ranks 2 --seq 64", ["balance", "rotate auto is"])
    terminal.run(f"meshloom upload words.txt --data words-{number}.txt", [f"words-{number}.txt"])
    terminal.run(f"meshloom data inspect words-{number}.txt --tokenizer bytes", ["4,500", "the quick brown fox"])
    terminal.run("meshloom job submit job.yaml --set optimizer.learning_rate=1", ["optimizer.lr"], exit_code=2)
    terminal.run(f"meshloom job submit job.yaml --name {other} --set optimizer.lr=1e-2 --set training.steps=20 --follow",
                 [f"{other}: succeeded"])
    terminal.run("meshloom job list", [job, other, "succeeded"])
    terminal.run(f"meshloom job compare {job} {other}", ["optimizer.lr", "0.01", "loss at step 20"])
    terminal.run(f"meshloom job plot {job} {other} --rows 8", [job, other])
    terminal.run(f"meshloom job logs {other}", ["succeeded"])
    terminal.run(f"meshloom evaluate --job {other} --data text.txt --seq 64 --batches 2", ["perplexity"])
    terminal.run(f"meshloom checkpoint export checkpoints/{other} --dtype bfloat16", ["bfloat16"])
    terminal.run(f"meshloom job delet {other}", ["delete"], exit_code=2)
    terminal.run(f"meshloom job delete {other}", [other])
    terminal.run(f"meshloom job show {other}", ["does not exist"], exit_code=1)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    programs = pathlib.Path(sys.argv[1]).resolve()
    for program in ("tmux", "mpirun"):
        if shutil.which(program) is None:
            print(f"SKIP: there is no {program}")
            return 77
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "data").mkdir()
        for text in ("data/text.txt", "words.txt"):
            (work / text).write_text("the quick brown fox jumps over the lazy dog. " * 100)
        (work / "job.yaml").write_text(JOB)
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        with open(work / "daemon.log", "w") as log:
            daemon = subprocess.Popen(
                ["mpirun", "-n", "2", "--bind-to", "none", "--oversubscribe", programs / "meshloomd", "--listen",
                 "127.0.0.1:0", "--state-dir", work / "state", "--data-dir", work / "data", "--world-size", "2"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            address = work / "state/address"
            while not (address.exists() and address.read_text().strip()):
                if daemon.poll() is not None:
                    sys.exit("the daemon did not start:\n" + (work / "daemon.log").read_text())
                time.sleep(0.05)
            os.chdir(work)
            for number, width in enumerate(WIDTHS, 1):
                terminal = Terminal(work, programs, address.read_text().strip(), width)
                try:
                    walk(terminal, number, width)
                    walk_around(terminal, number)
                finally:
                    terminal.close()
                print(f"{width} columns: as expected", flush=True)
            return 0
        finally:
            daemon.terminate()
            daemon.wait()


if __name__ == "__main__":
    sys.exit(main())
