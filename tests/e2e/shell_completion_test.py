#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: shell_completion_test.py SHELL SCRIPT

Completes command lines of meshloom with zsh or fish by the script that the build installs for it. Exits 77 where the
shell is not there.
"""
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TIME_LIMIT = 60  # of a shell that answers nothing
# What is typed, and the line that is run when a single word was completed.
LINES = {
    "meshloom job su": "job submit",
    "meshloom --json job pl": "--json job plot",
    "meshloom job submit --sw": "job submit --sweep",
    "meshloom pla": "plan",
    "meshloom plan search --wr": "plan search --write",
    "meshloom job nothing-like-it": "job nothing-like-it",
    "meshloom generate --prompts-f": "generate --prompts-file"}


def read_until(terminal, pattern):
    """What the shell writes up to a match of the pattern, which is returned."""
    text, deadline = "", time.monotonic() + TIME_LIMIT
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([terminal], [], [], left)[0]:
            sys.exit(f"no {pattern!r} in {text!r}")
        text += os.read(terminal, 4096).decode(errors="replace")
        if found := re.search(pattern, text):
            return found


def zsh(script):
    """Types lines with a tab behind them into an interactive zsh, whose meshloom shows what it was given."""
    with tempfile.TemporaryDirectory() as folder:
        process, terminal = pty.fork()
        if process == 0:
            os.environ.update(TERM="dumb", HOME=folder)
            os.execvp("zsh", ["zsh", "-f", "-i"])
        try:
            # The marks are written in two parts, so that what is typed does not look like what is shown.
            setup = (f"PS1='>'; fpath=('{script.parent}' $fpath); autoload -U compinit; compinit -u -d '{folder}/dump'; "
                     "meshloom() { print -r -- 'GO''T['\"$*\"']' }; print 'REA''DY'")
            os.write(terminal, setup.encode() + b"\n")
            read_until(terminal, "READY")
            completed = {}
            for line in LINES:
                os.write(terminal, line.encode() + b"\t\n")
                completed[line] = read_until(terminal, r"GOT\[(.*)\]").group(1)
            return completed
        finally:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            os.close(terminal)


def fish(script):
    """Asks fish for its completions, of which it takes one if there is no other."""
    completed = {}
    for line in LINES:
        out = subprocess.run(["fish", "--no-config", "-c", f"source '{script}'; complete -C '{line}'"], text=True,
                             capture_output=True, check=True, timeout=TIME_LIMIT).stdout
        words = [word.split("\t")[0] for word in out.splitlines()]
        before, typed = line.rsplit(" ", 1)
        completed[line] = f"{before} {words[0] if len(words) == 1 else typed}".removeprefix("meshloom ")
    return completed


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("zsh", "fish"):
        sys.exit(__doc__)
    shell, script = sys.argv[1], pathlib.Path(sys.argv[2])
    if shutil.which(shell) is None:
        print(f"SKIP: there is no {shell}; apt-get install {shell}")
        return 77
    completed = {"zsh": zsh, "fish": fish}[shell](script)
    wrong = {line: words for line, words in completed.items() if words != LINES[line]}
    for line, words in wrong.items():
        print(f"{line!r} became {words!r}, expected {LINES[line]!r}")
    print(f"{shell}: {len(completed)} lines, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
