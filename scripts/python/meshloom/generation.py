# SPDX-License-Identifier: Apache-2.0
"""Generation: text that the daemon draws from a model, at once or piece by piece."""

from __future__ import annotations

import dataclasses
import secrets
from typing import Any, Iterator, Sequence

from meshloom.connection import Connection
from meshloom.data import IntArray, as_ints
from meshloom.hints import with_hints
from meshloom.messages import fill, refuse
from meshloom.prompts import Message, Prompt, conversation, prompt_message, several
from meshloom.sources import set_source
from meshloom.v1 import generate_service_pb2, step_pb2


@dataclasses.dataclass(frozen=True)
class Piece:
    """What one token adds to sequence number `index`: `text` where a character became whole. The last piece of a
    sequence has no token, but what was left of the text, and `finish_reason` (length, stop or context). `seed` draws the
    sequence again alone. `notes` and `rendered_prompt`, what a chat template made of messages, come with the first."""

    index: int
    token: int | None
    text: str
    finish_reason: str
    seed: int
    weights_step: int
    notes: tuple[str, ...]
    rendered_prompt: str

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Generated:
    """One sequence: `text` (empty for a model whose tokens have none), `tokens`, and what Piece tells of it."""

    text: str
    tokens: IntArray
    finish_reason: str
    seed: int
    weights_step: int
    notes: tuple[str, ...]
    rendered_prompt: str

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Generated({self.text!r}, {len(self.tokens)} tokens, {self.finish_reason}, seed={self.seed})"


class Generation(list[Generated]):
    """The sequences of a call, those of the first prompt first. `text` is that of the only one."""

    @property
    def text(self) -> str:
        if len(self) != 1:
            raise ValueError(f"there are {len(self)} sequences: [item.text for item in generation]")
        return self[0].text

    def __str__(self) -> str:
        return "\n\n".join(item.text for item in self)


@with_hints
def generate(connection: Connection, source: Any, prompt: Prompt | Sequence[Prompt] | None = None, *,
             messages: Sequence[Message] | None = None, samples: int = 1, max_tokens: int | None = None,
             temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
             seed: int | None = None, stop_tokens: Sequence[int] = (), stop_strings: Sequence[str | bytes] = (),
             ignore_eos: bool = False, past_context: bool | None = None,
             stream: bool = False) -> Generation | Iterator[Piece]:
    """See Client.generate."""
    request = generate_service_pb2.GenerateRequest(samples=samples)
    set_source(request, source)
    if messages is not None:
        request.prompts.add(chat=conversation(messages))
    if prompt is not None:
        request.prompts.extend(prompt_message(item) for item in several(prompt))
    params = {"max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p,
              "seed": random_seed() if seed is None else seed, "past_context": past_context}
    fill(request.params, {name: value for name, value in params.items() if value is not None}, "params")
    request.stop.CopyFrom(sample_stop(stop_tokens, stop_strings, ignore_eos))
    drawn = _pieces(connection, request)
    return drawn if stream else collect(drawn)


def sample_stop(tokens: Sequence[int], strings: Sequence[str | bytes], ignore_eos: bool) -> step_pb2.SampleStop:
    if isinstance(strings, (str, bytes)):
        raise refuse("stop_strings", f"{strings!r} is one, expected a list of them")
    return step_pb2.SampleStop(token_ids=tokens, ignore_eos=ignore_eos,
                               strings=[item.encode() if isinstance(item, str) else item for item in strings])


def random_seed() -> int:
    """Another one each time, which what was drawn tells."""
    return secrets.randbits(63)


def _pieces(connection: Connection, request: generate_service_pb2.GenerateRequest) -> Iterator[Piece]:
    """As they are drawn. Whoever leaves the loop ends the drawing."""
    for message in connection.stream(connection.generation.Generate, lambda: request, repeatable=False):
        token = None if message.done else message.token_id
        yield Piece(message.index, token, message.text, message.finish_reason if message.done else "",
                    message.seed, message.weights_step, tuple(message.notes), message.rendered_prompt)


def collect(drawn: Iterator[Piece]) -> Generation:
    sequences: dict[int, list[Piece]] = {}
    for piece in drawn:
        sequences.setdefault(piece.index, []).append(piece)
    return Generation(_joined(sequences[index]) for index in sorted(sequences))


def _joined(parts: list[Piece]) -> Generated:
    notes = tuple(note for part in parts for note in part.notes)
    rendered = next((part.rendered_prompt for part in parts if part.rendered_prompt), "")
    tokens = [part.token for part in parts if part.token is not None]
    steps = [part.weights_step for part in parts if part.token is not None]
    return Generated("".join(part.text for part in parts), as_ints(tokens, "tokens"), parts[-1].finish_reason,
                     parts[0].seed, steps[-1] if steps else 0, notes, rendered)
