# SPDX-License-Identifier: Apache-2.0
"""Messages of the protocol from mappings, spelled as in YAML."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, TypeVar

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from meshloom.errors import InvalidArgument, Violation
from meshloom.hints import did_you_mean
from meshloom.protocol import is_repeated

AnyMessage = TypeVar("AnyMessage", bound=Message)


def refuse(field: str, text: str) -> InvalidArgument:
    return InvalidArgument(f"{field}: {text}", reason="FIELD_INVALID", violations=[Violation(field, text)])


def fill(message: AnyMessage, values: Mapping[str, Any], path: str = "") -> AnyMessage:
    """Sets the fields that `values` names; nested mappings are nested messages, enum values their lower-case names
    without the type's prefix. A list takes the place of the one that is there, a map adds to it. Raises InvalidArgument
    with the path of what does not fit. Returns `message`."""
    if not isinstance(values, Mapping):
        raise refuse(path or "config", f"{values!r} is a {type(values).__name__}, expected a mapping of fields")
    for name, value in values.items():
        where = f"{path}.{name}" if path else str(name)
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            known = message.DESCRIPTOR.fields_by_name.keys()
            raise refuse(where, f"there is no such field{did_you_mean(str(name), known)}; there are "
                                f"{', '.join(sorted(known))}")
        try:
            _set(message, field, value, where)
        except (TypeError, ValueError) as error:
            if isinstance(error, InvalidArgument):
                raise
            raise refuse(where, f"{value!r} does not fit: {error}") from None
    return message


def field_paths(message: Message, prefix: str = "") -> Iterable[str]:
    """The fields of a message that have values, as paths; of a list or a map its own."""
    for field, value in message.ListFields():
        path = f"{prefix}{field.name}"
        if field.message_type is None or is_repeated(field):
            yield path
        else:
            yield from list(field_paths(value, f"{path}.")) or [path]


def plain(message: Message) -> dict[str, Any]:
    """The fields of a message that have values, as a mapping that `fill` makes the same message of."""
    return {field.name: _plain_field(field, value) for field, value in message.ListFields()}


def short_name(kind: EnumDescriptor, value: int) -> str:
    """An enum's value as YAML spells it: "succeeded"; empty for 0, which means that it is left out."""
    return _short_name(kind, kind.values_by_number[value].name) if value else ""


def _set(message: Message, field: FieldDescriptor, value: Any, where: str) -> None:
    if is_repeated(field):
        expected = "mapping" if _is_map(field) else "list"
        if isinstance(value, (str, bytes)) or isinstance(value, Mapping) != _is_map(field):
            kind = "text" if isinstance(value, (str, bytes)) else f"a {type(value).__name__}"
            raise refuse(where, f"{value!r} is {kind}, expected a {expected}")
        if _is_map(field):
            getattr(message, field.name).update(value)
            return
        message.ClearField(field.name)
        target = getattr(message, field.name)
        if field.message_type is None:
            target.extend(_scalar(field, item, where) for item in value)
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
    if isinstance(value, Message):
        target.CopyFrom(value)
    else:
        fill(target, value, where)


def _scalar(field: FieldDescriptor, value: Any, where: str) -> Any:
    if field.enum_type is None or not isinstance(value, str):
        return value
    names = {_short_name(field.enum_type, item.name): item.number for item in field.enum_type.values if item.number}
    if value not in names:
        raise refuse(where, f"{value!r} is unknown{did_you_mean(value, names)}; expected one of {', '.join(names)}")
    return names[value]


def _short_name(kind: EnumDescriptor, value: str) -> str:
    prefix = "".join("_" + c if c.isupper() else c.upper() for c in kind.name).lstrip("_") + "_"
    return value.removeprefix(prefix).lower()


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _plain_field(field: FieldDescriptor, value: Any) -> Any:
    if not is_repeated(field):
        return _plain_value(field, value)
    if _is_map(field):
        return dict(value)
    return [_plain_value(field, item) for item in value]


def _plain_value(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    return short_name(field.enum_type, value) if field.enum_type is not None else value
