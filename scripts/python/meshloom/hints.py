# SPDX-License-Identifier: Apache-2.0
"""What to write instead of a name that is not known: the nearest one, or what another library's word is here."""

from __future__ import annotations

import difflib
import functools
import inspect
from typing import Any, Callable, Iterable, TypeVar

# Of keyword arguments, by what transformers, vLLM, PyTorch and OpenAI's client call them. What job files have of other
# trainers' words is answered by the daemon.
_FAMILIAR = {
    "job": ("source",),
    "model": ("source",),
    "checkpoint": ("source",),
    "hf_folder": ("source",),
    "learning_rate": ("lr",),
    "betas": ("beta1", "beta2"),
    "adam_beta1": ("beta1",),
    "adam_beta2": ("beta2",),
    "epsilon": ("eps",),
    "adam_epsilon": ("eps",),
    "max_norm": ("grad_clip_norm",),
    "max_grad_norm": ("grad_clip_norm",),
    "grad_clip": ("grad_clip_norm",),
    "clip_grad_norm": ("grad_clip_norm",),
    "batch_size": ("micro_batch_size",),
    "loss_fn": ("loss",),
    "max_new_tokens": ("max_tokens",),
    "max_length": ("max_tokens",),
    "num_tokens": ("max_tokens",),
    "n": ("samples",),
    "num_samples": ("samples",),
    "num_return_sequences": ("samples",),
    "stop": ("stop_strings",),
    "stop_sequences": ("stop_strings",),
    "stop_token_ids": ("stop_tokens",),
    "eos_token_id": ("stop_tokens",),
    "do_sample": ("temperature",),
    "conversation": ("messages",),
    "chat": ("messages",),
    "input_ids": ("prompt", "prompts"),
    "max_steps": ("steps",),
    "num_steps": ("steps",),
    "save_steps": ("checkpoint_interval",),
    "eval_steps": ("validation_interval",),
    "host": ("address",),
    "url": ("address",),
    "timeout_seconds": ("timeout",),
    "metadata": ("user_metadata",),
    "ttl": ("ttl_seconds",),
    "lease": ("lease_seconds",),
}

Kind = TypeVar("Kind", bound=type)
Called = TypeVar("Called", bound=Callable[..., Any])


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is meant; empty if none is near."""
    names = list(known)
    for familiar in _FAMILIAR.get(name.lower().replace("-", "_"), ()):
        if familiar in names:
            return familiar
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.7 if len(name) > 3 else 0.8)
    return close[0] if close else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """"; did you mean NAME?", or nothing."""
    meant = nearest(name, known)
    return f"; did you mean {meant}?" if meant else ""


def with_hints(function: Called) -> Called:
    """Of a function: it tells a keyword argument that it does not have with the nearest that it has."""
    parameters = inspect.signature(function).parameters.values()
    names = {item.name for item in parameters if item.kind in (item.KEYWORD_ONLY, item.POSITIONAL_OR_KEYWORD)}
    if any(item.kind == item.VAR_KEYWORD for item in parameters):
        return function
    called = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def checked(*arguments: Any, **named: Any) -> Any:
        for name in named:
            if name not in names:
                known = sorted(names - {"self"})
                raise TypeError(f"{called}() has no argument {name!r}{did_you_mean(name, known)} (it has "
                                f"{', '.join(known)})")
        return function(*arguments, **named)

    return checked  # type: ignore[return-value]


def hinted(kind: Kind) -> Kind:
    """Of a class: its public methods tell a keyword argument that they do not have with the nearest that they have."""
    for name, member in list(vars(kind).items()):
        if inspect.isfunction(member) and (not name.startswith("_") or name == "__init__"):
            setattr(kind, name, with_hints(member))
    return kind
