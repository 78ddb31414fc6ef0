#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: draw_follow.py BUILD_DIR OUT.svg [--at SHARE]

Draws README's picture: a real job of the quickstart, followed in a terminal (tmux) by the programs in BUILD_DIR/bin, as
the screen stands when SHARE of its steps are done (default 0.7). Needs tmux, openmpi-bin and bible-kjv.
"""

import argparse
import html
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
COLUMNS, ROWS = 100, 40
TIME_LIMIT = 300  # seconds until the share is reached
WIDTH, HEIGHT, MARGIN = 8.4, 18, 16  # of a character, of a line, around the text: pixels
COLOURS = ["#1f2430", "#f07178", "#9ccc65", "#ffcb6b", "#82aaff", "#c792ea", "#89ddff", "#d8dee9"]
STYLE = re.compile(r"\x1b\[([0-9;]*)m")


class Screen:
    """A shell in a terminal of its own."""

    def __init__(self, work: pathlib.Path, programs: pathlib.Path):
        self.socket = work / "tmux"
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "-c", str(REPOSITORY),
                  "bash --norc --noprofile", environment=environment)

    def tmux(self, *arguments: str, environment=None) -> str:
        return subprocess.run(["tmux", "-S", self.socket, *arguments], text=True, capture_output=True, check=True,
                              env=environment).stdout

    def type(self, command: str) -> None:
        self.tmux("send-keys", "-l", command)
        self.tmux("send-keys", "Enter")

    def lines(self) -> list[str]:
        """What is shown, with the codes of its colours."""
        return self.tmux("capture-pane", "-p", "-e").rstrip().splitlines()


def pieces(line: str):
    """The column, the text and the style of each part of a line."""
    colour, bold, dim, column, at = "", False, False, 0, 0
    for match in [*STYLE.finditer(line), None]:
        text = line[at:match.start() if match else len(line)]
        if text:
            yield column, text, colour, bold, dim
            column += len(text)
        if match is None:
            return
        at = match.end()
        for code in map(int, (match[1] or "0").split(";")):
            if code == 0:
                colour, bold, dim = "", False, False
            elif code == 1:
                bold = True
            elif code == 2:
                dim = True
            elif 30 <= code <= 37 or 90 <= code <= 97:
                colour = COLOURS[code % 10]
            elif code == 39:
                colour = ""


def svg(lines: list[str]) -> str:
    """The screen as an image. Each part has its place, so that any monospaced font will do."""
    width, height = 2 * MARGIN + COLUMNS * WIDTH, 2 * MARGIN + len(lines) * HEIGHT
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" role="img">',
           "<title>meshloom job submit --follow, in a terminal</title>",
           f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#12151c"/>',
           '<g font-family="ui-monospace,DejaVu Sans Mono,Menlo,Consolas,monospace" font-size="14" fill="#d8dee9" '
           'xml:space="preserve">']
    for row, line in enumerate(lines):
        y = MARGIN + (row + 0.75) * HEIGHT
        for column, text, colour, bold, dim in pieces(line):
            if not text.strip():
                continue
            style = "".join([f' fill="{colour}"' if colour else "", ' font-weight="bold"' if bold else "",
                             ' opacity="0.6"' if dim else ""])
            out.append(f'<text x="{MARGIN + column * WIDTH:.1f}" y="{y:.1f}" textLength="{len(text) * WIDTH:.1f}"'
                       f'{style}>{html.escape(text)}</text>')
    return "\n".join([*out, "</g>", "</svg>", ""])


def record(work: pathlib.Path, build: pathlib.Path, share: float) -> list[str]:
    programs, data = build / "bin", work / "data"
    client = [str(programs / "meshloom"), "--state-dir", str(work / "state")]
    data.mkdir()
    with open(data / "bible.txt", "w", encoding="utf-8") as text:
        subprocess.run(["bible", "-f", "gen1:1-rev22:21"], stdin=subprocess.DEVNULL, stdout=text, check=True)
    subprocess.run([*client, "data", "train-tokenizer", "--vocab", "1024", "--out", str(data / "bible_bpe"),
                    str(data / "bible.txt")], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*client, "up", "-n", "2", "--data-dir", str(data), "--listen", "127.0.0.1:0"], check=True)
    screen = Screen(work, programs)
    try:
        address = (work / "state/address").read_text().strip()
        screen.type(f"PS1='$ '; export MESHLOOM_ADDRESS={address}; clear")
        time.sleep(1)
        screen.type("meshloom job submit configs/jobs/quickstart.yaml --follow")
        deadline = time.monotonic() + TIME_LIMIT
        while time.monotonic() < deadline:
            lines = screen.lines()
            steps = [int(step) / int(of) for step, of in re.findall(r"(\d+)/(\d+)", STYLE.sub("", "\n".join(lines)))]
            if steps and steps[-1] >= share:
                return lines
            time.sleep(0.2)
        sys.exit("the job did not come that far:\n" + "\n".join(screen.lines()))
    finally:
        screen.tmux("kill-server")
        subprocess.run([*client, "down", "--force"], check=False)


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--at", type=float, default=0.7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="meshloom-picture-") as work:
        lines = record(pathlib.Path(work), options.build.resolve(), options.at)
    options.out.write_text(svg(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
