"""Tokens of closures: the vector of the protocol, and what none of them opens."""

from __future__ import annotations

import pytest

from headrace.flags.closure_token import (
    ClosureTokenInvalid,
    RequestedClosure,
    sign_closure_token,
    verify_closure_token,
)
from headrace.flags.subscription import EVERY_FLAG, FlagSet

KEY = bytes(32)
OTHER = bytes(31) + b"\1"
ASKED = RequestedClosure("acme", "billing", 42, FlagSet(("checkout-redesign",)))
EXPIRES = 1767225660
TOKEN = "dG9rXzAx.1767225660.6b57c23644ab86daac5c5489a5cce0c0003a59eda01198c8833b0d25a9b135b2"


def test_the_vector_of_the_protocol() -> None:
    assert sign_closure_token(KEY, "tok_01", ASKED, EXPIRES) == TOKEN
    assert verify_closure_token([KEY], TOKEN, ASKED, EXPIRES - 0.1) == "tok_01"


def test_tokens_of_either_key_hold() -> None:
    assert verify_closure_token([OTHER, KEY], TOKEN, ASKED, 0) == "tok_01"
    assert verify_closure_token([KEY, OTHER], TOKEN, ASKED, 0) == "tok_01"
    for keys in ([OTHER], []):
        with pytest.raises(ClosureTokenInvalid):
            verify_closure_token(keys, TOKEN, ASKED, 0)


@pytest.mark.parametrize("now_s", [EXPIRES, EXPIRES + 0.5, EXPIRES + 1e9])
def test_a_token_is_over_when_its_time_has_come(now_s: float) -> None:
    with pytest.raises(ClosureTokenInvalid):
        verify_closure_token([KEY], TOKEN, ASKED, now_s)


@pytest.mark.parametrize(
    "asked",
    [
        RequestedClosure("acmf", "billing", 42, ASKED.flags),
        RequestedClosure("acme", "billinh", 42, ASKED.flags),
        RequestedClosure("acme", "billing", 43, ASKED.flags),
        RequestedClosure("acme", "billing", 42, EVERY_FLAG),
        RequestedClosure("acmeb", "illing", 42, ASKED.flags),
    ],
)
def test_a_token_is_for_one_closure(asked: RequestedClosure) -> None:
    with pytest.raises(ClosureTokenInvalid):
        verify_closure_token([KEY], TOKEN, asked, 0)


PRINCIPAL, AT, MAC = TOKEN.split(".")


@pytest.mark.parametrize(
    "token",
    [
        "", ".", "..", TOKEN[:-1], TOKEN + "0", TOKEN.upper(), f"{TOKEN}.", f".{TOKEN}",
        f"dG9rXzAy.{AT}.{MAC}", f"{PRINCIPAL}.{int(AT) + 1}.{MAC}", f"{PRINCIPAL}.0{AT}.{MAC}",
        f"{PRINCIPAL}.-1.{MAC}", f"{PRINCIPAL}.{'9' * 40}.{MAC}", f"{PRINCIPAL}=.{AT}.{MAC}",
        f"_w.{AT}.{MAC}", f"ÿ.{AT}.{MAC}", f"{PRINCIPAL}.{AT}.ÿ", f"{PRINCIPAL}.{AT}.\ud800",
        f"{'A' * 5000}.{AT}.{MAC}",
    ],
)  # fmt: skip
def test_what_is_no_token(token: str) -> None:
    with pytest.raises(ClosureTokenInvalid):
        verify_closure_token([KEY], token, ASKED, 0)


def test_any_principal_can_be_named() -> None:
    for principal in ("", "a.b", "ä/ö", "x" * 200):
        token = sign_closure_token(KEY, principal, ASKED, EXPIRES)
        assert verify_closure_token([KEY], token, ASKED, 0) == principal
