# SPDX-License-Identifier: Apache-2.0
"""Variables that chat templates are rendered with: six kinds, and as many random ones as wanted."""
import random

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a \"town\" <now> & later",
        "parameters": {
            "type": "object",
            "properties": {
                "town": {"type": "string", "description": "Its name: Zürich, 東京"},
                "days": {"type": "integer", "enum": [1, 2, 7]},
                "units": {"type": ["string", "null"], "default": None},
                "exact": {"type": "number", "minimum": 0.5, "maximum": 1e16},
                "list": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["town"],
        },
    },
}


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def kinds():
    """The six renderings of each template."""
    turns = [message("user", "Hello, who are you?"), message("assistant", "I am a model.")]
    several = turns + [message("user", "2 + 2 = ?"), message("assistant", "4, of course."), message("user", "Why?")]
    unicode_turns = [
        message("system", "  Answer in Ελληνικά, or {{ not }} <|im_end|>\n"),
        message("user", " \n\tΣΑΣ ẞß İ ﬁn 東京 👩‍👩‍👧 é\u0301 \u00a0\u3000"),
        message("assistant", "<think>\nHm \\n 'x' \"y\"\n</think>\n\nΝαί\u2028.\x85 "),
        message("user", "</think>{% if %}"),
    ]
    call = {"id": "call12345", "type": "function", "function": {"name": "get_weather", "arguments": {"town": "Zürich", "days": 2}}}
    tools = [
        message("system", "Use tools."),
        message("user", "How is the weather?"),
        message("assistant", "", tool_calls=[call]),
        message("tool", "{\"sun\": true}", name="get_weather", tool_call_id="call12345"),
        message("assistant", "It is sunny."),
        message("user", "Thanks"),
    ]
    parts = [
        message("user", [{"type": "text", "text": "What is in "}, {"type": "image"}, {"type": "text", "text": "this?"}]),
        message("assistant", [{"type": "text", "text": "A cat."}], reasoning_content="I see\na cat."),
        message("user", ""),
    ]
    made = [
        {"messages": turns, "add_generation_prompt": False},
        {"messages": turns[:1], "add_generation_prompt": True},
        {"messages": [message("system", "Be brief.")] + several, "add_generation_prompt": True},
        {"messages": unicode_turns, "add_generation_prompt": True},
        {"messages": tools, "add_generation_prompt": True, "tools": [WEATHER]},
        {"messages": parts, "add_generation_prompt": False, "enable_thinking": False},
    ]
    return [{**one, **TOKENS} for one in made]


WORDS = ["the", "sun", " is", "\n", "\n\n", " ", "\t", "Zürich", "東京", "👍🏽", "ß", "İ", "Σας", "<|im_end|>", "{{x}}",
         "{% y %}", "'", '"', "\\", "&", "<think>", "</think>", "0", "1.5", "[/INST]", "<s>", "\u00a0", "\u2028", "e\u0301", "."]


def text(draw):
    return "".join(draw.choice(WORDS) + draw.choice(["", " "]) for _ in range(draw.choice([0, 1, 3, 10, 60])))


def conversation(draw):
    """A random one: mostly as trainers have them, some with tools, parts and odd roles."""
    messages = []
    if draw.random() < 0.4:
        messages.append(message(draw.choice(["system", "system", "developer"]), text(draw)))
    for turn in range(draw.randint(1, 5)):
        messages.append(message("user", text(draw)))
        if turn and draw.random() < 0.2:
            break
        answer = message("assistant", text(draw))
        if draw.random() < 0.2:
            answer["reasoning_content"] = text(draw)
        if draw.random() < 0.15:
            answer["tool_calls"] = [{"type": "function", "id": "abcdefghi", "function": {"name": "f", "arguments": {"x": text(draw), "n": draw.choice([1, 0.1, None, True])}}}]
            messages += [answer, message("tool", text(draw), tool_call_id="abcdefghi", name="f")]
        else:
            messages.append(answer)
    if draw.random() < 0.1:
        messages[draw.randrange(len(messages))]["content"] = [{"type": "text", "text": text(draw)}]
    variables = {"messages": messages, "add_generation_prompt": draw.random() < 0.5, **TOKENS}
    if draw.random() < 0.2:
        variables["tools"] = [WEATHER]
    if draw.random() < 0.2:
        variables["enable_thinking"] = draw.random() < 0.5
    return variables


def conversations(seed, count):
    draw = random.Random(seed)
    return [conversation(draw) for _ in range(count)]
