"""Archives as clients pack and unpack them, with nothing of ours, and the forms they come in."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping

_BOUNDARY = "conformance-form"
FORM_TYPE = f"multipart/form-data; boundary={_BOUNDARY}"


def pack_files(files: Mapping[str, str | bytes]) -> bytes:
    """Files by path as tar.gz, in the order in which they are given."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, text in files.items():
            content = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def unpack_files(packed: bytes) -> dict[str, str]:
    """The files of a tar.gz by path."""
    found: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None, f"{member.name} is no file"
            found[member.name] = content.read().decode("utf-8", "surrogateescape")
    return found


def make_form(field: str, content: bytes) -> bytes:
    """A form with one file in it."""
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"; filename="m.tgz"\r\n'
    return f"{head}\r\n".encode() + content + f"\r\n--{_BOUNDARY}--\r\n".encode()
