# SPDX-License-Identifier: Apache-2.0
"""Messages of the protocol from mappings, spelled as in YAML."""

from __future__ import annotations

from typing import Any, Mapping, TypeVar

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from meshloom.errors import InvalidArgument, Violation

AnyMessage = TypeVar("AnyMessage", bound=Message)


def refuse(field: str, text: str) -> InvalidArgument:
    return InvalidArgument(f"{field}: {text}", reason="FIELD_INVALID", violations=[Violation(field, text)])


def fill(message: AnyMessage, values: Mapping[str, Any], path: str = "") -> AnyMessage:
    """Sets the fields that `values` names; nested mappings are nested messages, enum values their lower-case names
    without the type's prefix. Raises InvalidArgument with the path of what does not fit. Returns `message`."""
    for name, value in values.items():
        where = f"{path}.{name}" if path else name
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            known = ", ".join(sorted(message.DESCRIPTOR.fields_by_name))
            raise refuse(where, f"there is no such field; there are {known}")
        try:
            _set(message, field, value, where)
        except (TypeError, ValueError) as error:
            if isinstance(error, InvalidArgument):
                raise
            raise refuse(where, f"{value!r} does not fit: {error}") from None
    return message


def _set(message: Message, field: FieldDescriptor, value: Any, where: str) -> None:
    if field.label == FieldDescriptor.LABEL_REPEATED:
        target = getattr(message, field.name)
        if field.message_type is None:
            target.extend(_scalar(field, item, where) for item in value)
        elif isinstance(value, Mapping):
            target.update(value)
        else:
            for index, item in enumerate(value):
                _merge(target.add(), item, f"{where}[{index}]")
    elif field.message_type is not None:
        target = getattr(message, field.name)
        target.SetInParent()
        _merge(target, value, where)
    else:
        setattr(message, field.name, _scalar(field, value, where))


def _merge(target: Message, value: Any, where: str) -> None:
    if isinstance(value, Mapping):
        fill(target, value, where)
    else:
        target.CopyFrom(value)


def _scalar(field: FieldDescriptor, value: Any, where: str) -> Any:
    if field.enum_type is None or not isinstance(value, str):
        return value
    names = {_short_name(field.enum_type, item.name): item.number for item in field.enum_type.values if item.number}
    if value not in names:
        raise refuse(where, f"{value!r} is unknown, expected one of {', '.join(names)}")
    return names[value]


def _short_name(kind: EnumDescriptor, value: str) -> str:
    prefix = "".join("_" + c if c.isupper() else c.upper() for c in kind.name).lstrip("_") + "_"
    return value.removeprefix(prefix).lower()
