# SPDX-License-Identifier: Apache-2.0
"""Prompts: text, token ids, or a conversation."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from meshloom.data import as_ints
from meshloom.messages import refuse
from meshloom.v1 import chat_pb2, generate_service_pb2

Message = Mapping[str, str]  #: {"role": "user", "content": "..."}
Prompt = str | npt.ArrayLike | Sequence[Message]


def several(prompts: Prompt | Sequence[Prompt]) -> Sequence[Any]:
    """One prompt, text, flat ids or a conversation, is a list of one."""
    if isinstance(prompts, str) or _is_conversation(prompts):
        return [prompts]
    items: Any = prompts
    one = len(items) > 0 and all(np.ndim(item) == 0 and not isinstance(item, str) for item in items)
    return [items] if one else items


def prompt_message(prompt: Prompt) -> generate_service_pb2.Prompt:
    if isinstance(prompt, str):
        return generate_service_pb2.Prompt(prompt=prompt)
    if _is_conversation(prompt):
        return generate_service_pb2.Prompt(chat=conversation(prompt))
    return generate_service_pb2.Prompt(token_ids=as_ints(prompt, "prompts").tolist())  # type: ignore[arg-type]


def conversation(messages: Any) -> chat_pb2.Conversation:
    """Of a list of {"role", "content"}, or of one such message."""
    made = chat_pb2.Conversation()
    for index, message in enumerate([messages] if isinstance(messages, Mapping) else messages):
        if not isinstance(message, Mapping) or not all(isinstance(message.get(key), str) for key in ("role", "content")):
            raise refuse(f"messages[{index}]", f"{message!r} is no message; expected {{\"role\": \"user\", "
                                               f"\"content\": \"...\"}}")
        if unknown := set(message) - {"role", "content"}:
            raise refuse(f"messages[{index}]", f"has {', '.join(sorted(map(str, unknown)))}; a message has a role and "
                                               f"a content alone")
        made.messages.add(role=message["role"], content=message["content"])
    return made


def _is_conversation(prompt: Any) -> bool:
    if isinstance(prompt, Mapping):
        return True
    return isinstance(prompt, Sequence) and len(prompt) > 0 and all(isinstance(item, Mapping) for item in prompt)
