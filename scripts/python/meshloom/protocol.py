# SPDX-License-Identifier: Apache-2.0
"""The protocol's messages and services, made at run time from their description.

Code that protoc generates works with some versions of protobuf and refuses to be loaded by others. The description of
the protocol (protocol.binpb, a FileDescriptorSet) is data, which all of them read.
"""

from __future__ import annotations

import pathlib
from typing import Any, Callable

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.internal import enum_type_wrapper

_DESCRIPTION = pathlib.Path(__file__).with_name("v1") / "protocol.binpb"


def _read_pool() -> descriptor_pool.DescriptorPool:
    """A pool of its own: what else a process has loaded under these names does not meet it."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTION.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL = _read_pool()


def _class_maker() -> Callable[[Any], Any]:
    newer = getattr(message_factory, "GetMessageClass", None)
    return newer or message_factory.MessageFactory(_POOL).GetPrototype


message_class: Callable[[Any], Any] = _class_maker()  #: the class of a message's descriptor


def publish(file: str, namespace: dict[str, Any]) -> None:
    """Fills the module of one file of the protocol ("run.proto") with its messages, enums and enum values."""
    description = _POOL.FindFileByName(f"v1/{file}")
    namespace["DESCRIPTOR"] = description
    for name, message in description.message_types_by_name.items():
        namespace[name] = message_class(message)
    for name, enum in description.enum_types_by_name.items():
        namespace[name] = enum_type_wrapper.EnumTypeWrapper(enum)
        for value in enum.values:
            namespace[value.name] = value.number


class Stub:
    """The methods of a service ("RunService") as callables of a channel, as generated stubs have them."""

    def __init__(self, channel: grpc.Channel, service: str) -> None:
        description = _POOL.FindServiceByName(f"meshloom.v1.{service}")
        streams = _streams(description)
        for method in description.methods:
            client, server = streams[method.name]
            kind = f"{'stream' if client else 'unary'}_{'stream' if server else 'unary'}"
            make = getattr(channel, kind)
            setattr(self, method.name, make(f"/{description.full_name}/{method.name}",
                                            request_serializer=message_class(method.input_type).SerializeToString,
                                            response_deserializer=message_class(method.output_type).FromString))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the service has no method {name}")


def _streams(service: Any) -> dict[str, tuple[bool, bool]]:
    """By method: whether the client streams, and the daemon. Descriptors of methods tell it in some versions alone, and
    those of files are copied by all implementations."""
    file = descriptor_pb2.FileDescriptorProto()
    service.file.CopyToProto(file)
    own = next(item for item in file.service if item.name == service.name)
    return {method.name: (method.client_streaming, method.server_streaming) for method in own.method}


def is_repeated(field: FieldDescriptor) -> bool:
    newer = getattr(field, "is_repeated", None)  # which took the place of the label
    return bool(field.label == FieldDescriptor.LABEL_REPEATED if newer is None else newer)
