# SPDX-License-Identifier: Apache-2.0
"""gRPC handlers for a service of a vendored .proto file, made from its descriptor.

Owns the one place where methods meet message classes, so that no generated service code is
needed. Must not know any particular service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import grpc
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

Handler: TypeAlias = "grpc.GenericRpcHandler[Any, Any]"
"""The handlers of one service, as a gRPC server takes them."""


def handlers(
    file: FileDescriptor, service: str, methods: Mapping[str, Callable[..., Any]]
) -> Handler:
    """The handlers of one service.

    methods: by the name in the .proto file, a coroutine function for a plain call, an
    asynchronous generator for a server stream; each takes the request and the context. Raises
    ValueError unless exactly the service's methods are given.
    """
    descriptor = file.services_by_name[service]
    if set(methods) != set(descriptor.methods_by_name):
        raise ValueError(f"{descriptor.full_name} has methods {sorted(descriptor.methods_by_name)}")
    made = {
        name: _handler(method, methods[name]) for name, method in descriptor.methods_by_name.items()
    }
    return grpc.method_handlers_generic_handler(descriptor.full_name, made)


def _handler(
    method: MethodDescriptor, behaviour: Callable[..., Any]
) -> grpc.RpcMethodHandler[Any, Any]:
    make = (
        grpc.unary_stream_rpc_method_handler
        if method.server_streaming
        else grpc.unary_unary_rpc_method_handler
    )
    return make(
        behaviour,
        request_deserializer=GetMessageClass(method.input_type).FromString,
        response_serializer=GetMessageClass(method.output_type).SerializeToString,
    )
