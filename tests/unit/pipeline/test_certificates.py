"""Subjects of erasures and their certificates."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from headrace.core.errors import Corrupt
from headrace.formats.index_plans import IndexPlans, plan
from headrace.pipeline.erasure.certificate import (
    Certificate,
    ReadBack,
    load_key,
    public_key_of,
    sign,
    signing_key_of,
    verify,
)
from headrace.pipeline.erasure.query_match import QueryMatch
from headrace.pipeline.erasure.run import show_certificate
from headrace.pipeline.erasure.subject import Subject, parse_subject, searchable_logs
from headrace.pipeline.errors import CannotRun, JobFailed

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
SUBJECT = Subject("key", "ada@example.org")
CERTIFICATE = Certificate(
    id="1", store="s", subject_kind="key", subject_salt="ab", subject_sha256=SUBJECT.digest("ab"),
    requested_at="2026-01-01T00:00:00Z", completed_at="2026-01-01T00:00:09Z", found=(), deleted=0,
    segments_rewritten=0, objects_removed=0,
    read_back=ReadBack(manifest=1, segments=0, records=0, found=0), complete=True, remains=(),
    elsewhere=(),
)  # fmt: skip


@pytest.mark.parametrize("text", ["ada", "key=", "tag=*", "name=x", "query=" + "x" * 20_000])
def test_what_is_no_subject_is_refused(text: str) -> None:
    with pytest.raises(CannotRun, match="--subject"):
        parse_subject(text)


def test_a_subject_may_have_equals_signs() -> None:
    assert parse_subject("key=a=b") == Subject("key", "a=b")


def test_a_certificate_is_believed_by_its_signature() -> None:
    raw = sign(CERTIFICATE, KEY)
    assert verify(raw, "c", public_key_of(KEY).upper()) == CERTIFICATE
    assert SUBJECT.value.encode() not in raw


@pytest.mark.parametrize("field", ["certificate", "public_key", "signature"])
def test_a_certificate_that_was_changed_is_not_believed(field: str) -> None:
    signed = json.loads(sign(CERTIFICATE, KEY))
    other = Ed25519PrivateKey.from_private_bytes(bytes(31) + b"1")
    changed = msgspec.structs.replace(CERTIFICATE, deleted=7)
    signed[field] = json.loads(sign(changed, other))[field]
    with pytest.raises(Corrupt, match="signature"):
        verify(json.dumps(signed, separators=(",", ":")).encode(), "c")


def test_a_certificate_of_another_key_is_told() -> None:
    with pytest.raises(Corrupt, match="another key"):
        verify(sign(CERTIFICATE, KEY), "c", "00" * 32)


def test_a_certificate_is_of_one_subject(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(sign(CERTIFICATE, KEY))
    assert show_certificate(path, None, "key=ada@example.org").problems == []
    with pytest.raises(JobFailed, match="another subject"):
        show_certificate(path, None, "key=bob@example.org")
    path.write_bytes(b"{}")
    with pytest.raises(JobFailed, match="not a certificate"):
        show_certificate(path, None, None)


def test_keys_are_of_a_data_directory_or_the_users_own(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="signing-key"):
        signing_key_of(tmp_path)
    (tmp_path / "signing.key").write_text("ab" * 32)
    assert public_key_of(signing_key_of(tmp_path)) == public_key_of(signing_key_of(tmp_path))
    pem = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key.pem").write_bytes(pem)
    assert public_key_of(load_key(tmp_path / "key.pem")) == public_key_of(KEY)
    (tmp_path / "key.pem").write_bytes(b"no key")
    with pytest.raises(CannotRun, match=r"key\.pem"):
        load_key(tmp_path / "key.pem")


SEARCH = b"""{"primaryTimestampField": "at", "fields": {
  "at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}], "column": true},
  "user": {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/user"}],
           "exact": true}}}"""
PLANS = IndexPlans(plans=(plan(1, "a", SEARCH), plan(2, "b", SEARCH)))


def test_a_query_finds_records_by_what_their_logs_make_of_it() -> None:
    batch = pa.record_batch(
        {
            "log_id": [1, 1, 2, 2],
            "log": ["a", "a", "b", "b"],
            "seq": [1, 2, 1, 2],
            "data": [b'{"user": "ada"}', b'{"user": "bob"}', b"no JSON", b'{"user": "ada"}'],
        }
    )
    found = QueryMatch("user:ada", PLANS).take(batch)
    assert found.to_pydict() == {"log_id": [1, 2], "log": ["a", "b"], "seq": [1, 2]}


def test_a_query_that_no_log_understands_is_refused() -> None:
    assert searchable_logs("user:ada", PLANS) == PLANS
    with pytest.raises(CannotRun, match="no log"):
        searchable_logs("colour:red", PLANS)
    with pytest.raises(CannotRun, match="no log"):
        searchable_logs("user:ada", IndexPlans())
