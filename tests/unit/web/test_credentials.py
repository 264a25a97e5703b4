from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Code, Refused
from headrace.web.credential_store import CredentialStore
from headrace.web.credentials import (
    ALL_SCOPES,
    LOCAL,
    SCOPE_WORDS,
    Keyring,
    KeyringError,
    Principal,
    Scope,
)

READ_WRITE = Scope.READ | Scope.WRITE


@pytest.mark.parametrize(
    ("text", "scopes", "prefixes"),
    [
        ("s3cret", ALL_SCOPES, ()),
        ("s3cret:", ALL_SCOPES, ()),
        ("s3cret::", ALL_SCOPES, ()),
        ("s3cret:read", Scope.READ, ()),
        ("s3cret:rw", READ_WRITE, ()),
        ("s3cret:r+w+d", READ_WRITE | Scope.DELETE, ()),
        ("s3cret:rw+admin+a", READ_WRITE | Scope.ADMIN, ()),
        ("s3cret:read:", Scope.READ, ()),
        ("s3cret:read:tenant42:", Scope.READ, ("tenant42:",)),
        ("s3cret:write:tenant42:|shared.", Scope.WRITE, ("tenant42:", "shared.")),
        ("s3cret::a:b:c", ALL_SCOPES, ("a:b:c",)),
        ("  s3cret:read , ", Scope.READ, ()),
    ],
)
def test_an_entry_grants_what_is_written(
    text: str, scopes: Scope, prefixes: tuple[str, ...]
) -> None:
    principal = CredentialStore(Keyring.parse(text)).authenticate("Bearer s3cret")
    assert (principal.scopes, principal.prefixes) == (scopes, prefixes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ",",
        ":read",
        "::",
        "s3cret:raed",
        "s3cret:READ",
        "s3cret: read",
        "s3cret:read+",
        "s3cret:+",
        "s3cret::|",
        "s3cret::a|",
        "s3cret::|a",
        "s3cret::a||b",
        "s3cret::a b",
        "s3cret, s3cret:read,",
        "s3 cret",
        "schlüssel",
        "s3cret\nother",
    ],
)
def test_a_list_that_is_not_exact_is_refused(text: str) -> None:
    with pytest.raises(KeyringError) as refusal:
        Keyring.parse(text)
    assert "s3" not in str(refusal.value)
    assert "raed" not in str(refusal.value)


def test_each_key_is_told_apart_and_none_is_kept() -> None:
    keyring = Keyring.parse("dash:read:tenant42:,ops::")
    store = CredentialStore(keyring)
    dash, ops = store.authenticate("Bearer dash"), store.authenticate("bearer  ops ")
    assert keyring.principals == (dash, ops)
    assert dash.scopes == Scope.READ
    assert ops.scopes == ALL_SCOPES
    assert dash.id != ops.id
    assert "dash" not in f"{store!r} {dash!r}"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic b3Bz",
        "ops",
        "Bearer op",
        "Bearer opsx",
        "Bearer \ud800",
    ],
)
def test_whoever_is_unknown_is_refused(header: str | None) -> None:
    with pytest.raises(Refused) as refusal:
        CredentialStore(Keyring.parse("ops,other:read")).authenticate(header)
    assert refusal.value.code is Code.UNAUTHENTICATED
    assert "ops" not in refusal.value.message


def test_without_keys_everyone_is_local() -> None:
    store = CredentialStore()
    assert store.development
    assert store.authenticate(None) is LOCAL
    assert store.authenticate_user("Basic anything") is LOCAL
    assert store.authenticate("Bearer anything") is LOCAL
    assert store.identify("anything") is LOCAL
    LOCAL.require(ALL_SCOPES, "any", "name")


def test_a_missing_scope_is_named() -> None:
    with pytest.raises(Refused, match="lacks the scope write") as refusal:
        Principal("k", Scope.READ).require(READ_WRITE, "jobs")
    assert refusal.value.code is Code.FORBIDDEN
    assert refusal.value.detail == {"missing_scopes": ["write"]}


def test_every_name_must_lie_inside_the_prefixes() -> None:
    principal = Principal("k", READ_WRITE, ("tenant42:", "shared."))
    principal.require(Scope.READ, "tenant42:jobs", "shared.news")
    assert not principal.may_see("tenant4")
    with pytest.raises(Refused, match='"tenant43:jobs" is outside') as refusal:
        principal.require(Scope.WRITE, "shared.news", "tenant43:jobs")
    assert refusal.value.code is Code.FORBIDDEN
    assert refusal.value.detail == {"name": "tenant43:jobs"}


word = st.sampled_from([*SCOPE_WORDS, "", "raed", "READ", " read"])
key_text = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="ab:+|, rwd", max_size=30),
    st.builds(
        lambda entries: ",".join(entries),
        st.lists(
            st.builds(
                lambda secret, words, prefixes: f"{secret}:{'+'.join(words)}:{'|'.join(prefixes)}",
                st.text(alphabet="abc", max_size=4),
                st.lists(word, max_size=3),
                st.lists(st.text(alphabet="xy:.", max_size=4), max_size=3),
            ),
            max_size=3,
        ),
    ),
)


@given(key_text)
def test_parsing_refuses_or_grants_no_more_than_is_written(text: str) -> None:
    try:
        keyring = Keyring.parse(text)
    except KeyringError:
        return
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    assert 0 < len(keyring) == len(entries)
    for entry, principal in zip(entries, keyring.principals, strict=True):
        secret, _, rest = entry.partition(":")
        scopes, _, prefixes = rest.partition(":")
        assert CredentialStore(keyring).identify(secret) is principal
        if scopes:
            letters = {str(scope.name)[0].lower() for scope in principal.scopes}
            written = {
                letter
                for written in scopes.split("+")
                for letter in ("rw" if written == "rw" else written[0])
            }
            assert letters == written
        if prefixes:
            assert principal.prefixes == tuple(prefixes.split("|"))
            assert not principal.may_see("")
