#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: compare.py ENCODE_CHAT [--conversations N] [--templates FOLDER]

Compares the program encode_chat with transformers: the ids of N conversations as apply_chat_template gives them, and
which of them are learnt. Where a template has {% generation %} these are return_assistant_tokens_mask; else an answer
is what its message adds to the rendering of those before it with the beginning of an answer, held against the offsets
of the tokens. Where that is no beginning the last answer alone is learnt, and the ids are those up to it. The templates
are those below, all *.jinja of a folder, and those of models that have a copy in tagged/: return_assistant_tokens_mask
of the copy, in which {% generation %} stands by hand, is what is learnt of the model's own template. Prints a line for
each, and exits 1 if one differs; exits 77 if transformers is not there.
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

try:
    from transformers import PreTrainedTokenizerFast
    from transformers.utils.chat_template_utils import render_jinja_template
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
MARKS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>",
         "<start_of_turn>", "<end_of_turn>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
MARKED = ("{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}"
          "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content + '<|im_end|>' }}"
          "{% endif %}{{ '\\n' }}{% endfor %}")
# Answers begin and end inside of words and of tokens.
INLINE = ("{% for m in messages %}{% if m.role == 'assistant' %}x{% generation %}{{ m.content }}{% endgeneration %}y"
          "{% else %}Q{{ m.content }}A{% endif %}{% endfor %}")
# As in Qwen 3's template, thoughts of earlier answers are left out.
THOUGHTS = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and not loop.last %}"
            "{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
OWN = {"chatml": CHATML, "marked": MARKED, "inline": INLINE, "thoughts": THOUGHTS}
WORDS = ("the fox asks what they said , größtenteils Äpfel 1234 \U0001F98A\u200D \n\n  it's </think> <think> x=1; 日本語 "
         "don't 3.14 e\u0301 <|im_end|> end.").split(" ")


def conversations(count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        messages = []
        if rng.random() < 0.4:
            messages.append({"role": "system", "content": text(rng)})
        elif rng.random() < 0.1:
            messages.append({"role": "assistant", "content": text(rng)})
        for _ in range(rng.randint(1, 4)):
            messages.append({"role": "user", "content": text(rng)})
            messages.append({"role": "assistant", "content": text(rng)})
        if rng.random() < 0.1:
            messages.append({"role": "user", "content": text(rng)})
        yield messages


def text(rng):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 12)))


class Answers:
    """What is learnt of a conversation by a template without marks, in characters of its text."""

    def __init__(self, tokenizer, messages):
        self.tokenizer = tokenizer
        self.messages, self.alone, self.spans = messages, False, []
        whole, answers = self.rendered(messages), [i for i, one in enumerate(messages) if one["role"] == "assistant"]
        for i in answers:
            answered = self.rendered(messages[:i + 1])
            before = self.before(messages, i, answered)
            earlier_end = self.spans[-1][1] if self.spans else 0
            if not (whole.startswith(answered) and answered.startswith(before)) or len(before) < earlier_end:
                return self.take_last(messages, answers)
            self.spans.append((len(before), len(answered)))

    def rendered(self, messages, begins=False):
        given = {"add_generation_prompt": begins, **self.tokenizer.special_tokens_map}
        return render_jinja_template([messages], chat_template=self.tokenizer.chat_template, **given)[0][0]

    def before(self, messages, i, answered):
        try:
            begun = self.rendered(messages[:i], True)
            if i > 0 or answered.startswith(begun):
                return begun
        except Exception:
            if i > 0:
                raise
        marked = self.rendered([messages[0] | {"content": "MARKED"}])
        before = marked.partition("MARKED")[0]
        return before if before != marked and answered.startswith(before) else answered

    def take_last(self, messages, answers):
        last = answers[-1]
        self.messages, self.alone = messages[:last + 1], len(answers) > 1
        text = self.rendered(self.messages)
        before = self.before(messages, last, text)
        begin = next((i for i, (a, b) in enumerate(zip(before, text)) if a != b), min(len(before), len(text)))
        if begin < len(before):
            others = self.rendered(messages[:last]) if last else ""
            if begin < len(others) or not before.startswith(others):
                raise ValueError("it cannot be told what the assistant says")
        self.spans = [(begin, len(text))]

    def mask(self):
        text = self.rendered(self.messages)
        offsets = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        return [int(any(a < end and b > begin for begin, end in self.spans)) for a, b in offsets]


def marked_mask(tokenizer, messages):
    return tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True,
                                         return_assistant_tokens_mask=True)["assistant_masks"]


def last_run(mask):
    """The mask without all answers but the last one."""
    end = len(mask) - mask[::-1].index(1)
    begin = end - next((i for i, one in enumerate(reversed(mask[:end])) if not one), end)
    return [int(begin <= i < end) for i in range(len(mask))]


def write_folder(folder, template, tokenizer_json):
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}))
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


def compare_one(tokenizer, tagged, is_marked, messages, found, counts):
    """Why a conversation differs; None where it does not."""
    try:
        whole = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True)["input_ids"]
        answers = None if is_marked else Answers(tokenizer, messages)
    except Exception as error:  # what a template raises, and what Python refuses in one
        counts["refused"] += 1
        return None if "error" in found else f"is refused by transformers: {error}"
    if "error" in found:
        return found["error"]
    if is_marked:
        learnt, ids, alone = marked_mask(tokenizer, messages), whole, False
    else:
        learnt, alone = answers.mask(), answers.alone
        ids = tokenizer.apply_chat_template(answers.messages, tokenize=True, return_dict=True)["input_ids"]
    if found["ids"] != ids:
        return f"has other tokens\n{found['ids']}\n{ids}"
    if found["last"] != alone:
        return f"has its last answer alone: {found['last']}, expected {alone}"
    if found["learnt"] != learnt:
        return f"has other tokens that are learnt\n{found['learnt']}\n{learnt}"
    if tagged is not None:
        mask = marked_mask(tagged, answers.messages)
        if found["learnt"] != (last_run(mask) if answers.messages is not messages or alone else mask):
            return f"has other tokens between tags\n{found['learnt']}\n{mask}"
    counts["last alone" if alone else "equal"] += 1
    return None


def compare(name, template, tagged, tokenizer_json, program, chats):
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = write_folder(pathlib.Path(name_of_folder) / "own", template, tokenizer_json)
        lines = folder / "chat.jsonl"
        lines.write_text("".join(json.dumps({"messages": m}) + "\n" for m in chats))
        out = subprocess.run([program, str(folder), str(lines)], stdout=subprocess.PIPE, check=True).stdout
        tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder))
        copy = None
        if tagged is not None:
            copy = PreTrainedTokenizerFast.from_pretrained(
                str(write_folder(pathlib.Path(name_of_folder) / "tagged", tagged, tokenizer_json)))
    is_marked = re.search(r"\{%-?\s*generation\b", template) is not None
    counts = {"equal": 0, "last alone": 0, "refused": 0}
    for messages, line in zip(chats, out.decode().splitlines(), strict=True):
        why = compare_one(tokenizer, copy, is_marked, messages, json.loads(line), counts)
        if why:
            return f"{name}: {messages} {why}"
    print(f"{name}: " + ", ".join(f"{count} {what}" for what, count in counts.items()), flush=True)
    return None


def models():
    """The name, the template and its copy with tags, of each model that has one."""
    golden = json.loads((HERE.parent / "chat_templates" / "models.json").read_text())["models"]
    own = {model["name"]: model["template"] for model in golden}
    copies = sorted((HERE / "tagged").glob("*.jinja"))
    return [(path.stem, own[path.stem], path.read_text(encoding="utf-8")) for path in copies]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("--templates", type=pathlib.Path)
    arguments = parser.parse_args()
    golden = json.loads((HERE.parent / "tokenizer" / "gpt2.json").read_text())["tokenizer"]
    size = len(golden["model"]["vocab"])
    golden["added_tokens"] += [{"id": size + i, "content": mark, "single_word": False, "lstrip": False, "rstrip": False,
                                "normalized": False, "special": True} for i, mark in enumerate(MARKS)]
    templates = [(name, template, None) for name, template in OWN.items()] + models()
    if arguments.templates:
        templates += [(path.stem, path.read_text(encoding="utf-8"), None)
                      for path in sorted(arguments.templates.glob("*.jinja"))]
    wrong = []
    for index, (name, template, tagged) in enumerate(templates):
        chats = list(conversations(arguments.conversations, index))
        problem = compare(name, template, tagged, golden, arguments.program, chats)
        if problem:
            print(problem)
            wrong.append(name)
    print(f"{len(templates) - len(wrong)} of {len(templates)} templates are equal")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
