# SPDX-License-Identifier: Apache-2.0
"""Text of models with a tokenizer, and leases, against a real daemon at MESHLOOM_ADDRESS."""

import gc
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

import meshloom
from support import CONFIG, data

SPECIAL = ["<s>", "</s>", "<|user|>", "<|assistant|>"]
MERGES = ["t h", "th e", "Ġ the"]
TEMPLATE = ("{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '</s>' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")


def stand_ins() -> list[str]:
    """The printable character that stands for each byte in a byte-level vocabulary."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in shown]
    return [chr(byte if byte in shown else 256 + others.index(byte)) for byte in range(256)]


def write_weights(file: pathlib.Path, vocabulary: int) -> None:
    """Random ones of a GPT-2 of one layer of 32 channels, in the format of safetensors."""
    block = {"ln_1.weight": (32,), "ln_1.bias": (32,), "attn.c_attn.weight": (32, 96), "attn.c_attn.bias": (96,),
             "attn.c_proj.weight": (32, 32), "attn.c_proj.bias": (32,), "ln_2.weight": (32,), "ln_2.bias": (32,),
             "mlp.c_fc.weight": (32, 128), "mlp.c_fc.bias": (128,), "mlp.c_proj.weight": (128, 32),
             "mlp.c_proj.bias": (32,)}
    shapes = {"transformer.wte.weight": (vocabulary, 32), "transformer.wpe.weight": (64, 32),
              **{f"transformer.h.0.{name}": shape for name, shape in block.items()},
              "transformer.ln_f.weight": (32,), "transformer.ln_f.bias": (32,)}
    random, header, values = np.random.default_rng(0), {}, b""
    for name, shape in shapes.items():
        array = random.normal(0, 0.02, shape).astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(values), len(values) + len(array)]}
        values += array
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + values)


def write_model(folder: pathlib.Path) -> None:
    """A GPT-2, its byte-level BPE of three merges with four special tokens, and a chat template."""
    vocabulary = [*stand_ins(), *(merge.replace(" ", "") for merge in MERGES)]
    ids = {token: index for index, token in enumerate([*vocabulary, *SPECIAL])}
    added = [{"id": ids[token], "content": token, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for token in SPECIAL]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": byte_level, "decoder": byte_level,
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": single,
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [ids["<s>"]], "tokens": ["<s>"]}}},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {token: ids[token] for token in vocabulary}, "merges": MERGES}}
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": len(ids), "n_positions": 64,
              "n_embd": 32, "n_layer": 1, "n_head": 2, "bos_token_id": ids["<s>"], "eos_token_id": ids["</s>"]}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
         "chat_template": TEMPLATE}), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_weights(folder / "model.safetensors", len(ids))


class TextTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.client = meshloom.Client(name="text-test")
        cls.addClassCleanup(cls.client.close)
        with tempfile.TemporaryDirectory() as folder:
            write_model(pathlib.Path(folder))
            cls.client.create_model("text-test", folder).result(60)
        cls.addClassCleanup(cls.client.delete_model, "text-test")
        cls.run_ = cls.client.create_training_run(
            {"model": {"name": "text-test"}, "plan": {"dtype": "float32"}, "training": {"seq_len": 64}})
        cls.addClassCleanup(cls.run_.close)

    def test_text_becomes_tokens_and_text_again(self) -> None:
        tokenizer = self.run_.tokenizer
        the, space_the, bos = 257, 258, 259
        self.assertEqual(tokenizer.encode("the the").tolist(), [bos, the, space_the])
        self.assertEqual(tokenizer.encode("the the", add_special_tokens=False).tolist(), [the, space_the])
        self.assertEqual(tokenizer.decode([bos, the, space_the]), "<s>the the")
        self.assertEqual(tokenizer.decode([bos, the], skip_special_tokens=True), "the")
        for text in ("", "a", "é\n日本", "<s>", " the  the "):
            again = tokenizer.decode(tokenizer.encode(text, add_special_tokens=False))
            self.assertEqual(again, text)
        with self.assertRaises(meshloom.InvalidArgument) as caught:
            tokenizer.decode([5, 263])
        self.assertEqual(caught.exception.field, "token_ids[1]")
        self.assertEqual(self.client.tokenizer("models/text-test").encode("the").tolist(), [bos, the])
        self.assertEqual(self.client.tokenizer("byte_gpt_tiny").encode("ab").tolist(), [97, 98])
        self.assertEqual(repr(self.client.tokenizer("byte_gpt_tiny")), "Tokenizer(byte_gpt_tiny)")
        with self.assertRaises(meshloom.MeshloomError) as no_text:
            self.client.tokenizer("gpt2_124m").encode("a")
        self.assertEqual(no_text.exception.reason, "TOKENIZER_NEEDED")

    def test_samples_have_text(self) -> None:
        future = self.run_.sample("the", samples=2, max_tokens=20, seed=1)
        watched: dict[int, bytes] = {}
        for some in future.watch():
            watched[some.sequence] = watched.get(some.sequence, b"") + some.text
        drawn = future.result(60)
        self.assertEqual([watched[i].decode() for i in range(2)], [sequence.text for sequence in drawn])
        for sequence in drawn:
            self.assertEqual(sequence.text, self.run_.tokenizer.decode(sequence.tokens, skip_special_tokens=True))

    def test_conversations(self) -> None:
        messages = [{"role": "user", "content": "the"}]
        tokenizer = self.run_.tokenizer
        self.assertEqual(tokenizer.chat_text(messages), "<|user|>the</s><|assistant|>")
        self.assertEqual(tokenizer.chat(messages).tolist(), [261, 257, 260, 262])
        drawn = self.run_.sample(messages, max_tokens=5, seed=1).result(60)[0]
        same = self.run_.sample(tokenizer.chat(messages), max_tokens=5, seed=1).result(60)[0]
        np.testing.assert_array_equal(drawn.tokens, same.tokens)
        with self.assertRaises(meshloom.InvalidArgument):
            tokenizer.chat([{"role": "user"}])
        with self.assertRaises(meshloom.MeshloomError) as caught:
            self.client.tokenizer("byte_gpt_tiny").chat(messages)
        self.assertEqual(caught.exception.reason, "NO_CHAT_TEMPLATE")

    def test_one_meaning_of_loss(self) -> None:
        batch = [meshloom.Datum.next_token(self.run_.tokenizer.encode("the the light of the world"))] * 3
        first = self.run_.forward_backward(batch, reduction="sum")
        step = self.run_.optim_step(lr=0.0).result(60)
        self.assertAlmostEqual(step.loss, first.result().loss, places=5)
        for reduction, tokens in (("token_mean", 0), ("token_mean", 1000)):
            losses = [self.run_.forward_backward(part, reduction=reduction, tokens=tokens) for part in (batch, batch[:1])]
            step = self.run_.optim_step(lr=0.0).result(60)
            self.assertEqual(step.tokens, sum(item.result().tokens for item in losses))
            self.assertAlmostEqual(step.loss, first.result().loss, places=5)


CHILD = """
import os, sys, meshloom
from support import CONFIG, data
client = meshloom.Client(name="lease-test")
run = client.create_training_run(CONFIG, lease_seconds=int(sys.argv[1]))
run.forward(data()).result()
print(run.name, run.token, flush=True)
if sys.argv[2] == "fork":
    if os.fork() == 0:
        try:
            run.forward(data())
        except meshloom.FailedPrecondition as error:
            print(error.reason, flush=True)
        os._exit(0)
    os.wait()
    run.forward(data()).result()
    run.close()
elif sys.argv[2] == "hang":
    sys.stdin.read()
"""


class LeaseTest(unittest.TestCase):
    def setUp(self) -> None:
        self.client = meshloom.Client(name="lease-test")
        self.addCleanup(self.client.close)

    def child(self, lease: int, what: str) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, "-c", CHILD, str(lease), what], text=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, cwd=pathlib.Path(__file__).parent)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def wait_closed(self, name: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while next(run for run in self.client.runs() if run.name == name).state != 6:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def test_a_run_has_a_lease_of_a_minute(self) -> None:
        with self.client.create_training_run(CONFIG) as run:
            self.assertEqual(run.info().spec.lease_seconds, 60)
            self.assertRegex(repr(run), "<TrainingRun runs/.*byte_gpt_tiny>")

    def test_a_process_that_is_killed_holds_the_ranks_for_its_lease_alone(self) -> None:
        process = self.child(2, "hang")
        name = process.stdout.readline().split()[0]
        time.sleep(3)  # longer than the lease, which heartbeats keep
        self.assertIn(name, [run.name for run in self.client.runs() if run.state == 3])
        process.kill()
        self.wait_closed(name, 20)

    def test_a_program_that_ends_without_a_word_is_not_kept_by_its_threads(self) -> None:
        process = self.child(1, "end")
        name = process.stdout.readline().split()[0]
        self.assertEqual(process.wait(20), 0)
        self.wait_closed(name, 20)

    def test_a_run_that_nobody_has_any_more_is_let_go(self) -> None:
        run = self.client.create_training_run(CONFIG, lease_seconds=1)
        run.forward(data()).result(30)
        run.sample("a", max_tokens=2).result(30)
        name = run.name
        del run
        gc.collect()
        self.wait_closed(name, 20)

    def test_a_fork_is_told_that_the_client_is_not_its_own(self) -> None:
        process = self.child(60, "fork")
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)
        self.assertIn("CLIENT_OF_ANOTHER_PROCESS", out)

    def test_whoever_waits_is_told_behind_whom(self) -> None:
        with self.client.create_training_run(CONFIG) as first:
            first.forward(data()).result(30)
            with self.assertLogs("meshloom", logging.WARNING) as logs:
                waiting = self.client.create_training_run(CONFIG)
                self.addCleanup(waiting.close)
                time.sleep(4)
            self.assertIn(first.name, logs.output[0])
            self.assertEqual(len(logs.output), 1)


if __name__ == "__main__":
    unittest.main()
