"""A master that cannot be one, or that nobody answers for, is refused before Spark starts."""

from __future__ import annotations

import socket

import pytest

from headrace.pipeline.errors import CannotRun
from headrace.pipeline.reach import check_master


@pytest.mark.parametrize(
    "url",
    ["local", "local[*]", "local[2,3]", "local[*,3]", "local-cluster[2,1,1024]", "yarn"],
)
def test_masters_that_need_nobody(url: str) -> None:
    check_master(url)


@pytest.mark.parametrize("url", ["", "nonsense", "local[0]", "local[x]", "local[]", "spark:host"])
def test_what_is_no_master(url: str) -> None:
    with pytest.raises(CannotRun, match="a master is"):
        check_master(url)


@pytest.mark.parametrize("scheme", ["spark://", "k8s://", "k8s://https://", "k8s://http://"])
def test_somebody_must_answer(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        check_master(scheme + address)
    with pytest.raises(CannotRun, match=f"answers at {scheme}{address}: "):
        check_master(scheme + address)
