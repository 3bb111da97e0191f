"""A gRPC client of the admin service that knows no .proto file: reflection tells it the calls."""

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SERVICE = "baton.admin.v1.Admin"
# How long a call may take.
CALL_S = 20


class Client:
    """A client of the operations listener at `address`."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)
        self.reflection = ProtoReflectionDescriptorDatabase(self.channel)
        self.service = descriptor_pool.DescriptorPool(self.reflection).FindServiceByName(SERVICE)

    def close(self):
        self.channel.close()

    def call(self, name, **fields):
        """Makes a call as reflection describes it; returns one answer, or an iterator of them."""
        method = self.service.methods_by_name[name]
        ask, answer = (message_factory.GetMessageClass(it) for it in (method.input_type, method.output_type))
        kind = self.channel.unary_stream if method.server_streaming else self.channel.unary_unary
        stub = kind(f"/{SERVICE}/{name}", ask.SerializeToString, answer.FromString)
        return stub(ask(**fields), timeout=CALL_S)

    def value(self, enum, name):
        """Returns the number of a value of an enum."""
        return self.service.file.enum_types_by_name[enum].values_by_name[name].number
