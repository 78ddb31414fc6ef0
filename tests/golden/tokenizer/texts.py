# SPDX-License-Identifier: Apache-2.0
"""Texts that tokenizers are trained on and compared with: languages, code, emoji, white space, broken UTF-8."""
import pathlib
import random

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]

SENTENCES = [
    "The quick brown fox didn't jump over 3 lazy dogs; it's what they've said, and I'm sure we'll see.",
    "Der Fuchs fraß größtenteils Äpfel, übrigens für 12,50 € das Kilo, obwohl's verboten war.",
    "Où êtes-vous allés cet été ? L'œuvre coûte 1 234,56 € à Besançon, n'est-ce pas ?",
    "El niño comió piñas en la montaña: ¿cuántas? ¡Muchísimas! Pingüinos también.",
    "Съешь ещё этих мягких французских булок, да выпей чаю в 17:45, ёлки зелёные.",
    "Ο γρήγορος καφές κόστισε 2,30 ευρώ στην Αθήνα· ΟΔΟΣ ΣΟΦΙΑΣ, ἄνθρωπος.",
    "ذهب الولد إلى المدرسة في الساعة ٧:٣٠ صباحًا، وكان الجو جميلًا جدًّا.",
    "הַיֶּלֶד הלך לבית הספר בשעה 8, ואמר: \"שלום\" לכל החברים.",
    "मैंने आज १२ किताबें पढ़ीं और फिर चाय पी। क्या आप भी आएँगे?",
    "วันนี้อากาศดีมาก เราจะไปตลาดตอน ๙ โมงเช้าเพื่อซื้อผลไม้",
    "我昨天买了三本书,花了120元。你们呢?北京的天气很好!",
    "今日は2026年の秋です。カタカナとひらがな、漢字を混ぜて「文章」を書く。ガギグ ﾊﾝｶｸ",
    "오늘은 날씨가 아주 좋아서 공원에서 3시간 동안 산책했어요. 각각의 한글",
    "Tôi đã ăn phở ở Hà Nội lúc 7 giờ sáng, rất ngon và rẻ: 45.000 ₫.",
    "İstanbul'da ılık bir gün; şöför ğüşiöç harflerini IĞDIR'da öğretti.",
    "Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy. Árvíztűrő tükörfúrógép.",
    "👩‍👩‍👧‍👦 went 🏃🏽‍♀️ to 🇩🇪 and 🇯🇵 with ❤️‍🔥 and 👍🏿!!! 🙂🙃 ½ ² ³ Ⅷ ① ﬁ ſ ™",
    "e\u0301 vs \u00e9, A\u030a vs \u00c5, \u1e9b\u0323, \u0344, \u212b \u2126, q\u0307\u0323 d\u0323\u0307, \uac00 \u1100\u1161\u11a8",
    "for (int i = 0; i < n; ++i) { sum += a[i] * 0x1F; }  // it's O(n)\n\tif (x != nullptr) return \"don't\";",
    "def f(x):\n    return {'k': [1, 22, 333, 4444, 55555], \"s\": x ** 2}  # they're\n\n\nclass A(object):\n        pass\n",
    "SELECT id, name FROM users WHERE id >= 1000000 AND name LIKE '%O''Neil%';\r\n\r\n<div class=\"x\">&nbsp;</div>\r\n",
    "   leading, trailing   \n\n\n \t\t tabs\u00a0no-break\u3000ideographic\u2003em \u200b zero\u180e \x85 next\x0b\x0c\x1c line  ",
    "YOU'RE I'LL We'D 'S 'T'RE'VE'M 'ſ she'ſ WON'T O'CLOCK ''' 'quoted' l'été",
]
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "\u00a0", "\u3000", "\u2028", "\x85", "\x0b", ""]
SPECIALS = ["<|endoftext|>", "<s>", "</s>", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "<unk>", "<mask>", "<tool>", "[WORD]"]
BROKEN = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\x80"]
RANGES = [(0x20, 0x7f), (0xa0, 0x250), (0x300, 0x370), (0x370, 0x600), (0x600, 0x1100), (0x1100, 0x2000),
          (0x2000, 0x3400), (0x4e00, 0x9fff), (0xa000, 0xd7ff), (0xe000, 0x10000), (0x10000, 0x20000),
          (0x20000, 0x32000), (0xe0000, 0x110000), (0, 0x20)]


def code():
    """The sources of this repository, one after the other."""
    files = sorted(p for kind in ("h", "cpp", "py", "md", "sh") for p in REPOSITORY.glob(f"*/**/*.{kind}")
                   if "build" not in p.parts and "golden" not in p.parts)
    return [p.read_text(errors="replace") for p in files]


def training(seed=1):
    """About 60 KB of everything."""
    draw = random.Random(seed)
    return SENTENCES * 6 + [draw.choice(SENTENCES) for _ in range(100)]


def fuzzed(seed):
    """Bytes that are mostly text."""
    draw = random.Random(seed)
    parts = []
    for _ in range(draw.randint(0, 12)):
        kind = draw.randint(0, 9)
        if kind < 3:
            sentence = draw.choice(SENTENCES)
            begin = draw.randrange(len(sentence))
            parts.append(sentence[begin:begin + draw.randint(1, 40)])
        elif kind == 3:
            parts.append(draw.choice(SPACES) * draw.randint(1, 6))
        elif kind == 4:
            parts.append(draw.choice(SPECIALS))
        elif kind == 5:
            parts.append(draw.choice(BROKEN))
        elif kind == 6:
            first, end = draw.choice(RANGES)
            parts.append("".join(chr(draw.randrange(first, end)) for _ in range(draw.randint(1, 8))))
        elif kind == 7:
            parts.append(draw.choice("aA1. '\n\u00e9\u4e2d\u0301") * draw.randint(1, 80))
        elif kind == 8:
            parts.append("'" + draw.choice(["s", "T", "re", "VE", "m", "lL", "D", "\u017f", "x"]))
        else:
            parts.append(draw.choice(SPACES))
    return b"".join(p if isinstance(p, bytes) else p.encode("utf-8", "surrogatepass") for p in parts)


def mixed(size, seed=2):
    """Documents of `size` bytes in all."""
    draw = random.Random(seed)
    sources = code()
    documents, total = [], 0
    while total < size:
        kind = draw.random()
        if kind < 0.5:
            text = draw.choice(sources).encode()
        elif kind < 0.9:
            text = draw.choice(["\n", " ", "\n\n"]).join(draw.choices(SENTENCES, k=40)).encode()
        else:
            text = b"".join(fuzzed(draw.getrandbits(40)) for _ in range(20))
        documents.append(text)
        total += len(text)
    return documents
