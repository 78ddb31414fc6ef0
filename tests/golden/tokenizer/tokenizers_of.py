# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers of every kind, trained by the `tokenizers` package: each as a Tokenizer, or as the text of a
tokenizer.json that the package would write otherwise."""
import json

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from character_map import character_map
from texts import training

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())


def byte_level(split=None, normalizer=None, prefix=False, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    level = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=split is None)
    tokenizer.pre_tokenizer = level if split is None else pre_tokenizers.Sequence(
        [*split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=BYTES, special_tokens=["<|endoftext|>"],
                                  show_progress=False)
    tokenizer.train_from_iterator(training(), trainer)
    return tokenizer


def isolated(expression, invert=False, behavior="isolated"):
    return pre_tokenizers.Split(Regex(expression), behavior=behavior, invert=invert)


def gpt2():
    return byte_level()


def roberta():
    tokenizer = byte_level(prefix=True)
    tokenizer.add_special_tokens([AddedToken("<s>"), AddedToken("</s>"), AddedToken("<mask>", lstrip=True)])
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>")))
    return tokenizer


def llama3():
    tokenizer = byte_level([isolated(LLAMA3)], ignore_merges=True)
    tokenizer.add_special_tokens([AddedToken("<s>"), AddedToken("</s>")])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                      special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])])
    return tokenizer


def qwen2():
    tokenizer = byte_level([isolated(QWEN2)], normalizer=normalizers.NFC(), fuse_unk=False)
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("[WORD]", single_word=True, rstrip=True)])
    return tokenizer


def gpt4o():
    return byte_level([isolated(GPT4O, invert=True, behavior="removed")])


def starcoder():
    return byte_level([pre_tokenizers.Digits(individual_digits=True), isolated(r"\s*\S+|\s+")])


def bert(lowercase=True):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=40))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(training(), trainers.WordPieceTrainer(
        vocab_size=900, special_tokens=special, show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", tokenizer.token_to_id("[CLS]")), ("[SEP]", tokenizer.token_to_id("[SEP]"))])
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return tokenizer


def bert_cased():
    return bert(lowercase=False)


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(),
        normalizers.Replace(Regex(r" {2,}"), " "), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.train_from_iterator(training(), trainers.UnigramTrainer(
        vocab_size=600, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False))
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


# As in sentencepiece's own maps: white space, full-width letters, ligatures, fractions, accents that follow their letter,
# characters that go.
FORMS = {
    "\t": " ", "\n": " ", "\r": " ", "\r\n": " ", "\u00a0": " ", "\u3000": " ", "\u200b": "", "\u00ad": "",
    "\ufb01": "fi", "\u00bd": "1\u20442", "\u2460": "1", "\u3314": "\u30ad\u30ed", "a\u0301": "\u00e1",
    "e\u0301": "\u00e9", "\u00a9": "(c)", "\u2026": "...", "\u0915\u094d": "k",
    **{chr(0xFF01 + i): chr(0x21 + i) for i in range(94)}}


def mapped():
    """Unigram behind a compiled map, as T5 and XLM-RoBERTa have it."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Precompiled(character_map(FORMS)), normalizers.Replace(Regex(r" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.train_from_iterator(training(), trainers.UnigramTrainer(
        vocab_size=600, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False))
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def compatible():
    """Lower-case words behind both normal forms of compatibility."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.NFKD(), normalizers.StripAccents(), normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(training(), trainers.WordPieceTrainer(
        vocab_size=800, special_tokens=["[UNK]"], show_progress=False))
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return tokenizer


def with_bytes(tokenizer):
    """The same BPE tokenizer with tokens for all bytes in its vocabulary."""
    state = json.loads(tokenizer.to_str())
    vocabulary = state["model"]["vocab"]
    for byte in range(256):
        vocabulary.setdefault(f"<0x{byte:02X}>", len(vocabulary))
    state["model"]["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(state))


def llama2():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    tokenizer.train_from_iterator(training(), trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<unk>", "<s>", "</s>"], limit_alphabet=150, show_progress=False))
    tokenizer.pre_tokenizer = None
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return with_bytes(tokenizer)


def unknown():
    """BPE with unknown characters that are joined, a prefix and a suffix of words."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=True, continuing_subword_prefix="##",
                                     end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation()])
    tokenizer.train_from_iterator(training(), trainers.BpeTrainer(
        vocab_size=500, special_tokens=["[UNK]"], limit_alphabet=100, continuing_subword_prefix="##",
        end_of_word_suffix="</w>", show_progress=False))
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    return tokenizer


def words():
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(), pre_tokenizers.Split("-", "merged_with_previous"),
        pre_tokenizers.Punctuation("contiguous")])
    tokenizer.train_from_iterator(training(), trainers.WordLevelTrainer(
        vocab_size=300, special_tokens=["[UNK]"], show_progress=False))
    return tokenizer


def scripts():
    """Words that end where the script changes, as sentencepiece trains them."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.UnicodeScripts(), pre_tokenizers.Digits(individual_digits=True)])
    tokenizer.train_from_iterator(training(), trainers.BpeTrainer(
        vocab_size=700, special_tokens=["[UNK]"], limit_alphabet=300, show_progress=False))
    return tokenizer


def delimited():
    """Pieces between commas, of seven characters at most."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.CharDelimiterSplit(","), pre_tokenizers.FixedLength(length=7),
        pre_tokenizers.CharDelimiterSplit("\u3002")])
    tokenizer.train_from_iterator(training(), trainers.WordLevelTrainer(
        vocab_size=900, special_tokens=["[UNK]"], show_progress=False))
    return tokenizer


def renumbered():
    """Added tokens whose ids leave holes, go backwards, or are not those of the vocabulary or of another token."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(training(), trainers.WordLevelTrainer(
        vocab_size=300, special_tokens=["[UNK]"], show_progress=False))
    state = json.loads(tokenizer.to_str())
    word = next(word for word in state["model"]["vocab"] if len(word) > 3 and word.isascii() and word.isalpha())
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
    state["added_tokens"] += [
        {**flags, "id": 4000, "content": "<tool>"}, {**flags, "id": 7, "content": word, "special": True},
        {**flags, "id": 3999, "content": "[WORD]", "lstrip": True}, {**flags, "id": 3, "content": "[MASK]"},
        {**flags, "id": 400, "content": ""}, {**flags, "id": 401, "content": "Fuchs", "normalized": True},
        {**flags, "id": 402, "content": "<s>", "special": True}, {**flags, "id": 300, "content": "[WORD]", "rstrip": True},
        {**flags, "id": 403, "content": "</s>"}]
    return json.dumps(state)


ALL = [gpt2, roberta, llama3, qwen2, gpt4o, starcoder, bert, bert_cased, unigram, mapped, compatible, llama2, unknown,
       words, scripts, delimited, renumbered]


def state_of(make):
    """The text of the tokenizer.json that one of these makes."""
    made = make()
    return made if isinstance(made, str) else made.to_str()


VERSION = tokenizers.__version__
