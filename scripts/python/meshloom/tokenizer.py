# SPDX-License-Identifier: Apache-2.0
"""Tokenizer: the tokens of a text and the text of tokens, as the daemon has them for a model."""

from __future__ import annotations

from typing import Any, Sequence

import numpy.typing as npt

from meshloom.connection import Connection
from meshloom.data import IntArray, as_ints
from meshloom.prompts import Message, conversation
from meshloom.v1 import config_pb2, data_service_pb2


class Tokenizer:
    """That of a model, or its bytes where it has 256 tokens. Every call asks the daemon, so that its tokens are those
    that the daemon trains on and draws. A model without text raises MeshloomError (TOKENIZER_NEEDED) at the first."""

    def __init__(self, connection: Connection, model: config_pb2.ModelSource, tokenizer: str = "") -> None:
        self._connection = connection
        self._source = data_service_pb2.TokenizerSource(model=model, tokenizer=tokenizer)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> IntArray:
        """The tokens of a text, by default as a prompt has them: with those that stand around one, such as a bos."""
        request = data_service_pb2.EncodeTextRequest(source=self._source, add_special_tokens=add_special_tokens)
        request.prompt.prompt = text
        return as_ints(list(self._encoded(request).token_ids), "token_ids")

    def decode(self, tokens: npt.ArrayLike, *, skip_special_tokens: bool = False) -> str:
        """The text of tokens. Bytes that make no character are U+FFFD."""
        request = data_service_pb2.DecodeTokensRequest(source=self._source, skip_special_tokens=skip_special_tokens,
                                                       token_ids=as_ints(tokens, "tokens").tolist())
        answer: data_service_pb2.DecodeTokensResponse = self._connection.call(self._connection.data.DecodeTokens, request)
        return answer.text

    def chat(self, messages: Sequence[Message]) -> IntArray:
        """The tokens of a conversation as the model's chat template renders it, up to where the assistant's answer
        begins: a prompt for `sample` and `generate`. A message is {"role": "user", "content": "..."}."""
        return as_ints(list(self._conversation(messages).token_ids), "token_ids")

    def chat_text(self, messages: Sequence[Message]) -> str:
        """The same as text."""
        rendered: str = self._conversation(messages).rendered
        return rendered

    def _conversation(self, messages: Sequence[Message]) -> Any:
        request = data_service_pb2.EncodeTextRequest(source=self._source)
        request.prompt.chat.CopyFrom(conversation(messages))
        return self._encoded(request)

    def _encoded(self, request: data_service_pb2.EncodeTextRequest) -> Any:
        return self._connection.call(self._connection.data.EncodeText, request)

    def __repr__(self) -> str:
        model = self._source.model
        named = [getattr(model, name) for name in ("preset", "config", "hf_folder", "name") if getattr(model, name)]
        return f"Tokenizer({self._source.tokenizer or ', '.join(named)})"
