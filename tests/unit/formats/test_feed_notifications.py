"""The messages of gRPC are those of the file that others generate theirs from."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from headrace.formats import feed_notifications as messages

ROOT = Path(__file__).parents[3]
FILE = "epistola/notifications/v1/notifications.proto"


def test_generated_messages_are_those_of_the_file(tmp_path: Path) -> None:
    compiled = tmp_path / "compiled"
    done = protoc.main(["", f"-I{ROOT / 'proto'}", f"--descriptor_set_out={compiled}", FILE])
    assert done == 0
    (of_file,) = FileDescriptorSet.FromString(compiled.read_bytes()).file
    generated = FileDescriptorProto()
    messages.DESCRIPTOR.CopyToProto(generated)
    of_file.ClearField("source_code_info")
    for each in of_file.message_type:  # what protoc notes for JSON follows from the names
        for field in each.field:
            field.ClearField("json_name")
    assert generated == of_file, "run `make proto`"
    assert of_file.options.java_multiple_files
    service = messages.DESCRIPTOR.services_by_name["EventNotificationService"]
    assert service.full_name == messages.SERVICE
    assert messages.METHOD in service.methods_by_name
