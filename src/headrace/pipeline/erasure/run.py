"""`headrace pipeline erase --subject` and `certificate`: erasure on request as commands."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.core.errors import Corrupt
from headrace.pipeline.erasure.certificate import (
    BYTES_MAX,
    Certificate,
    load_key,
    public_key_of,
    sign,
    signing_key_of,
    verify,
)
from headrace.pipeline.erasure.request import ErasureRequest, erase_subject
from headrace.pipeline.erasure.subject import parse_subject
from headrace.pipeline.errors import CannotRun, JobFailed
from headrace.pipeline.report import Report
from headrace.pipeline.server import API_KEY
from headrace.pipeline.store_location import StoreLocation
from headrace.printing import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_options(options: argparse.Namespace) -> None:
    """Refuse what could not be carried out, before anything is deleted."""
    parse_subject(options.subject)
    if not options.url:
        raise CannotRun("--subject needs --url: a running server deletes, and says what is dead")
    if options.log:
        raise CannotRun("--subject is erased in all logs: --log does not go with it")
    if options.certificate is None:
        raise CannotRun("--subject needs --certificate FILE")
    if options.certificate.exists():
        raise CannotRun(f"{options.certificate} exists already")
    if not options.certificate.absolute().parent.is_dir():
        raise CannotRun(f"{options.certificate.absolute().parent} is no folder")


def certify(spark: SparkSession, place: StoreLocation, options: argparse.Namespace) -> Report:
    """Erase the subject, and write the certificate."""
    key = load_key(options.signing_key) if options.signing_key else signing_key_of(place.data_dir)
    subject = parse_subject(options.subject)
    request = ErasureRequest(subject, options.url, options.api_key or os.environ.get(API_KEY))
    certificate = erase_subject(spark, place, request)
    try:
        with open(options.certificate, "xb") as file:
            file.write(sign(certificate, key))
    except OSError as error:
        raise JobFailed(f"the certificate cannot be written: {error}") from None
    report = _report(certificate, str(place))
    report.notes.append(f"certificate {certificate.id} is in {options.certificate}")
    return report


def show_public_key(place: StoreLocation) -> Report:
    return Report("", [], public_key_of(signing_key_of(place.data_dir)))


def show_certificate(path: Path, public_key: str | None, subject: str | None) -> Report:
    """What a certificate says, once its signature is found to be good."""
    try:
        with open(path, "rb") as file:
            raw = file.read(BYTES_MAX)
    except OSError as error:
        raise CannotRun(f"{path}: {error.strerror or error}") from None
    try:
        certificate = verify(raw, str(path), public_key)
    except Corrupt as damage:
        raise JobFailed(str(damage)) from None
    if subject is not None:
        digest = parse_subject(subject).digest(certificate.subject_salt)
        if digest != certificate.subject_sha256:
            raise JobFailed(f"{path}: is of another subject")
    report = _report(certificate, str(path))
    if public_key is None:
        report.notes.append("who signed it was not asked: --public-key says whose it must be")
    return report


def _report(certificate: Certificate, where: str) -> Report:
    rows: list[tuple[object, ...]] = [
        (one.records, f"{one.first_seq}–{one.last_seq}", one.log) for one in certificate.found
    ]
    back = certificate.read_back
    found = sum(one.records for one in certificate.found)
    what = f"{count(found, 'record')} found in {count(len(certificate.found), 'log')}"
    what += f", {certificate.deleted} of them live until now; {count(back.segments, 'segment')} "
    what += f"with {count(back.records, 'record')} read again: {back.found or 'none'} left"
    problems = [] if certificate.complete else ["not everything is gone: see what may remain"]
    notes = [
        *certificate.remains,
        *(f"elsewhere: {c.where}, until {c.until}" for c in certificate.elsewhere),
    ]
    return Report("records seqs log", rows, f"{where}: {what}", problems, notes)
