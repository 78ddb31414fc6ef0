#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: compare.py RENDER_TEMPLATES [--made-up N] [--seed N] [--conversations N] [--models PART]

Compares render_templates with jinja2 on templates that are made up at random (--made-up), and on the templates of
models.json with random conversations (--conversations of each), which transformers renders where it is installed. Both
render the same bytes or both refuse. SKIPPED (77) where jinja2 is not installed.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import time
import warnings

os.environ["TZ"] = "UTC"
time.tzset()
warnings.simplefilter("ignore")  # Python's, of what it compiles

try:
    import jinja2  # noqa: F401
except ImportError:
    print("SKIPPED: jinja2 is not installed")
    sys.exit(77)
try:
    from transformers.utils.chat_template_utils import render_jinja_template
except Exception:  # not there, or without one of its own parts
    render_jinja_template = None

import conversations
import features
import made_up
from reference import NOW, environment, render

FOLDER = pathlib.Path(__file__).parent
# What jinja2 gives has an address in memory.
ADDRESSES = ("<generator object", " object at 0x", "<Namespace {")


class Renderer:
    """render_templates as a process."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def render(self, source, variables, now=NOW):
        request = {"template": source, "variables": variables, "now": now}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"render_templates ended ({self.process.wait()}) at:\n{source}")
        return json.loads(answer)


def differs(expected, ours):
    """Why they differ; None where they do not, or where the difference is told of by our refusal."""
    if "text" in ours:
        if "text" not in expected:
            return f"jinja2 refuses it ({expected}), here it is {ours['text']!r}"
        if any(mark in expected["text"] for mark in ADDRESSES):
            return f"has an address: {expected['text']!r}, here {ours['text']!r}"
        if ours["text"] != expected["text"] or ours["generated"] != expected.get("generated", ours["generated"]):
            return f"jinja2: {expected['text']!r}\nhere:   {ours['text']!r} {expected.get('generated')} {ours['generated']}"
        return None
    if "text" in expected and ours["reason"] not in ("NOT_OFFERED", "TOKENIZER_LIMIT"):
        return f"jinja2: {expected['text']!r}\nhere:   {ours['error']}"
    if "raised" in expected and ours["reason"] not in ("TEMPLATE_RAISED", "NOT_OFFERED"):
        return f"jinja2: {expected}\nhere: {ours}"
    return None


def by_transformers(source, variables):
    """As render() of the reference, by transformers' own function."""
    rest = dict(variables)
    messages, tools = rest.pop("messages"), rest.pop("tools", None)
    try:
        texts, ranges = render_jinja_template([messages], tools=tools, chat_template=source, return_assistant_tokens_mask=True, **rest)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    text = texts[0]
    return {"text": text, "generated": [[len(text[:place].encode()) for place in one] for one in ranges[0]]}


def as_transformers_has_it(variables):
    """What apply_chat_template gives the template besides: thoughts by their older name, and tools, which are always there."""
    messages = []
    for one in variables["messages"]:
        thoughts = {"thinking": one["reasoning_content"]} if "reasoning_content" in one else {}
        messages.append({**thoughts, **one})
    return {"tools": None, "documents": None, **variables, "messages": messages}


def compare_made_up(renderer, count, seed):
    made = environment()
    counts = collections.Counter()
    for number in range(seed, seed + count):
        draw = random.Random(number)
        source = made_up.block(draw)
        expected, ours = render(source, features.VARIABLES, made=made), renderer.render(source, features.VARIABLES)
        why = differs(expected, ours)
        counts["differ" if why else "equal" if "text" in ours else "refused here" if "text" in expected else "refused by both"] += 1
        if why:
            print(f"--- {number}\n{source}\n{why}")
        elif "text" in expected and "text" not in ours:
            counts["here: " + ours["error"].split(": ", 1)[1][:60]] += 1
    print("made up:", dict(counts))
    return counts["differ"]


def compare_conversations(renderer, count, seed, names):
    wrong = 0
    for model in json.loads((FOLDER / "models.json").read_text())["models"]:
        if names not in model["name"]:
            continue
        counts = collections.Counter()
        for variables in conversations.conversations(seed, count):
            now = int(time.time()) // 86400 * 86400  # templates ask for the date alone
            if render_jinja_template is not None:
                given = as_transformers_has_it(variables)
                expected = by_transformers(model["template"], variables)
            else:
                given = variables
                expected = render(model["template"], variables, now)
            ours = renderer.render(model["template"], given, now)
            why = differs(expected, ours)
            counts["differ" if why else "equal" if "text" in ours else "refused here alone" if "text" in expected else "refused by both"] += 1
            if why or ("text" in expected and "text" not in ours):
                wrong += 1
                print(f"--- {model['name']}: {why or ours}")
        print(model["name"], dict(counts), flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("--made-up", type=int, default=0)
    parser.add_argument("--conversations", type=int, default=0)
    parser.add_argument("--models", help="those whose names contain it alone", default="")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    renderer = Renderer(options.program)
    wrong = compare_made_up(renderer, options.made_up, options.seed) if options.made_up else 0
    wrong += compare_conversations(renderer, options.conversations, options.seed, options.models) if options.conversations else 0
    sys.exit(1 if wrong else 0)


main()
