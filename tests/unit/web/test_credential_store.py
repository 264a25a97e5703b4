"""The credential store: every source of credentials, and every way in which it refuses."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from headrace.core.errors import Code, Refused
from headrace.core.limits import JWT_BYTES_MAX
from headrace.core.token import Grants, Token
from headrace.web.calls import Gate, by_api_key, by_key, by_key_or_password
from headrace.web.concurrency import Slots
from headrace.web.credential_store import CredentialStore, digest_of, new_secret
from headrace.web.credentials import ALL_SCOPES, LOCAL, NO_SCOPE, Keyring, KeyringError, Scope
from headrace.web.json_web_tokens import Verifier
from headrace.web.users import UserTable
from support.asking import make_request

SECRET = "a secret of at least thirty-two bytes"
LATER = int(time.time()) + 3600
STORED, DIGEST = new_secret("exd_read_")
TOKEN = Token("tok_1", DIGEST, Grants(1, ("a.",), ("acme",), ("acme/billing",), ("reader",), "r"))


class Catalog:
    """The tokens of an engine that is not there."""

    def __init__(self, *tokens: Token) -> None:
        self.tokens = {token.digest: token for token in tokens}

    def find(self, digest: bytes) -> Token | None:
        return self.tokens.get(digest)

    def is_valid(self, id: str) -> bool:
        return any(token.id == id for token in self.tokens.values())


def make(**sources: Any) -> CredentialStore:
    store = CredentialStore(
        Keyring.parse("key:read") + Keyring.parse_admin("root"),
        users=UserTable.parse("ann:pass:here:reader+producer,bob:word"),
        **{"jwt": Verifier.of_secret(SECRET)} | sources,
    )
    store.open(Catalog(TOKEN))  # type: ignore[arg-type]
    return store


def sign(key: Any = SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    kid = claims.pop("kid", None)
    claims = {"sub": "ann", "exp": LATER} | claims
    claims = {name: claim for name, claim in claims.items() if claim is not None}
    return jwt.encode(claims, key, algorithm, headers={"kid": kid} if kid else None)


def basic(text: str) -> str:
    return "Basic " + b64encode(text.encode()).decode()


# --- who is known ---------------------------------------------------------------------------------


def test_a_key_has_its_scopes_and_the_superadmin_everything() -> None:
    store = make()
    key, admin = store.authenticate("Bearer key"), store.authenticate("Bearer root")
    assert (key.scopes, key.superadmin, key.may_enter("acme")) == (Scope.READ, False, False)
    assert (admin.id, admin.scopes, admin.superadmin) == ("admin", ALL_SCOPES, True)
    admin.require(ALL_SCOPES, "any")
    admin.require_tenant("acme")
    admin.require_namespace("acme", "billing")
    admin.require_role("reader")


def test_a_stored_token_grants_what_the_catalog_says() -> None:
    principal = make().identify(STORED)
    assert (principal.id, principal.scopes) == ("tok_1", Scope.READ)
    assert (principal.prefixes, principal.realm) == (("a.",), "r")
    principal.require_tenant("acme")
    principal.require_namespace("acme", "billing")
    principal.require_role("editor", "reader")
    for refused in (
        lambda: principal.require_tenant("other"),
        lambda: principal.require_namespace("acme", "growth"),
        lambda: principal.require_role("editor"),
        lambda: principal.require(Scope.WRITE),
    ):
        with pytest.raises(Refused) as refusal:
            refused()
        assert refusal.value.code is Code.FORBIDDEN


def test_namespaces_of_who_has_none_are_those_of_the_tenants() -> None:
    principal = make().identify(sign(allowed_tenants=["acme"]))
    assert principal.may_use("acme", "any")
    assert not principal.may_use("other", "any")
    assert make().identify(sign(allowed_tenants=["*"])).may_use("other", "any")


def test_a_user_is_the_same_by_password_and_by_token() -> None:
    store = make()
    ann = store.authenticate_user(basic("ann:pass"))
    assert (ann.roles, ann.realm, ann.scopes) == (("reader", "producer"), "here", NO_SCOPE)
    token = store.authenticate_user("bearer " + sign(username="ann", sub="7", realm="here"))
    assert ann.id == token.id == "user:here/ann"
    assert token.expires_at_ms == LATER * 1000
    assert store.authenticate_user(basic("bob:word")).roles == ()


@pytest.mark.parametrize(
    ("authenticate", "fields", "id"),
    [
        (by_key, {"authorization": "Bearer root"}, "admin"),
        (by_key_or_password, {"authorization": "Bearer root"}, "admin"),
        (by_key_or_password, {"authorization": basic("bob:word")}, "user:/bob"),
        (by_api_key, {"x_api_key": "root"}, "admin"),
        (by_api_key, {"authorization": "ApiKey root"}, "admin"),
        (by_api_key, {"authorization": "Bearer root"}, "admin"),
        (by_key, {"authorization": basic("bob:word")}, None),
        (by_key, {"x_api_key": "root"}, None),
        (by_key, {"authorization": "ApiKey root"}, None),
        (by_api_key, {"authorization": basic("bob:word")}, None),
    ],
)
def test_a_surface_says_which_header_it_reads(
    authenticate: Any, fields: dict[str, str], id: str | None
) -> None:
    request = make_request("GET", "/", **fields)
    gate = Gate(make(), Slots(), Slots(), 0)
    if id is not None:
        assert authenticate(gate, request).id == id
    else:
        with pytest.raises(Refused) as refusal:
            authenticate(gate, request)
        assert refusal.value.code is Code.UNAUTHENTICATED
    development = Gate(CredentialStore(), Slots(), Slots(), 0)
    assert authenticate(development, request) is LOCAL


# --- who is not -----------------------------------------------------------------------------------

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
BAD: dict[str, Callable[[], str]] = {
    "nothing": lambda: "",
    "a word": lambda: "wrong",
    "half a key": lambda: "ke",
    "the digest of a token": lambda: DIGEST.hex(),
    "another token": lambda: new_secret("exd_read_")[0],
    "a lone surrogate": lambda: "\ud800",
    "two dots": lambda: "..",
    "no JSON": lambda: "a.b.c",
    "another secret": lambda: sign("x" * 40),
    "an expired token": lambda: sign(exp=LATER - 7200),
    "a token for ever": lambda: sign(exp=None),
    "a token for later": lambda: sign(nbf=LATER),
    "a token of no algorithm": lambda: sign(None, "none"),
    "another algorithm": lambda: sign("x" * 64, "HS512"),
    "the same secret and another algorithm": lambda: sign(SECRET * 2, "HS384"),
    "a signature by a private key": lambda: sign(RSA, "RS256"),
    "a token of nobody": lambda: sign(sub=None),
    "a name with a line break": lambda: sign(username="a\nb"),
    "a name without end": lambda: sign(username="a" * 300),
    "a name of half a character": lambda: sign(username="\ud800"),
    "a role of half a character": lambda: sign(roles=["\ud800"]),
    "a realm that could be another's": lambda: sign(realm="a/b"),
    "roles that are none": lambda: sign(roles="admin"),
    "a realm that is none": lambda: sign(realm=7),
    "a time that is none": lambda: sign(exp=float("inf")),
    "a time beyond all numbers": lambda: sign(exp=1e308),
    "a large token": lambda: sign(more="x" * JWT_BYTES_MAX),
    "brackets": lambda: b64encode(b"[" * 4000).decode().rstrip("=") + ".e30.x",
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
def test_bad_credentials_are_refused_and_never_quoted(name: str) -> None:
    bad = BAD[name]()
    with pytest.raises(Refused) as refusal:
        make().identify(bad)
    assert refusal.value.code is Code.UNAUTHENTICATED
    assert len(bad) < 3 or bad not in f"{refusal.value.message}{refusal.value.detail}"


@pytest.mark.parametrize(
    "header",
    [None, "", "Basic", "Basic ", "Basic ?", "Basic YW5u", basic("ann:word"), basic("bob:pass"),
     basic("ann:"), basic(":pass"), basic("eve:pass"), basic("ann:pass:here"), "Digest x"],
)  # fmt: skip
def test_bad_passwords_are_refused(header: str | None) -> None:
    with pytest.raises(Refused) as refusal:
        make().authenticate_user(header)
    assert refusal.value.code is Code.UNAUTHENTICATED


@given(st.text(max_size=60) | st.lists(st.binary(max_size=40), min_size=3, max_size=3).map(
    lambda parts: ".".join(b64encode(part, b"-_").decode().rstrip("=") for part in parts)
))  # fmt: skip
def test_nothing_but_a_refusal_comes_of_noise(token: str) -> None:
    with pytest.raises(Refused):
        make().identify(token)


def test_before_the_catalog_is_read_an_unknown_token_may_try_again() -> None:
    store = CredentialStore(Keyring.parse_admin("root"))
    assert store.identify("root").superadmin
    with pytest.raises(Refused) as refusal:
        store.identify(STORED)
    assert refusal.value.code is Code.NOT_READY
    with pytest.raises(Refused) as refusal:
        CredentialStore(Keyring.parse("key")).identify(STORED)
    assert refusal.value.code is Code.UNAUTHENTICATED, "nobody issues tokens there"


@pytest.mark.parametrize("shown", ["one", "two", "three", "none of them"])
def test_the_time_does_not_tell_which_secret_was_shown(shown: str) -> None:
    """All of them are compared, by digest and in constant time, whichever it is."""
    keys = Keyring.parse("one,two,three")
    with mock.patch("headrace.web.credentials.compare_digest", return_value=False) as compare:
        keys.find(digest_of(shown))
    digest = sha256(shown.encode()).digest()
    assert [call.args[1] for call in compare.call_args_list] == [digest] * 3
    users = UserTable.parse("one:a,two:a,three:a")
    with (
        mock.patch("headrace.web.users.compare_digest", return_value=True) as compare,
    ):
        users.identify(basic(f"{shown}:a")[6:])
    assert compare.call_count == 3


def test_a_good_token_is_verified_once_and_expires_all_the_same() -> None:
    with mock.patch("headrace.web.json_web_tokens.JWTS_KNOWN_MAX", 1):
        verifier, token = Verifier.of_secret(SECRET), sign()
    with mock.patch.object(jwt, "decode", wraps=jwt.decode) as decode:
        assert verifier.verify(token) is verifier.verify(token)
        assert decode.call_count == 1
        verifier.verify(sign(sub="bob"))
        assert len(verifier._known) == 1
        with mock.patch("headrace.web.json_web_tokens.time", return_value=LATER):
            verifier.verify(sign(sub="bob"))
        assert decode.call_count == 3


# --- which are gone -------------------------------------------------------------------------------


def test_what_nobody_can_show_any_more_is_gone() -> None:
    store = make(jwt=None)
    key = store.identify("key").id
    for id in (key, "admin", "tok_1", "user:here/ann"):
        assert not store.is_gone(id)
    for id in ("local", "tok_2", "user:here/eve", "0123"):
        assert store.is_gone(id)
    assert not make().is_gone("user:here/eve"), "somebody may sign a token for her"


@pytest.mark.parametrize(
    "source",
    [
        {"keys": Keyring.parse("a")},
        {"keys": Keyring.parse_admin("a")},
        {"users": UserTable.parse("a:b")},
        {"jwt": Verifier.of_secret(SECRET)},
    ],
)
def test_any_credential_ends_development_mode(source: dict[str, Any]) -> None:
    store = CredentialStore(**source)
    assert not store.development
    for refused in (store.authenticate, store.authenticate_user):
        with pytest.raises(Refused):
            refused(None)


def test_nothing_shows_a_secret() -> None:
    shown = repr(make())
    for secret in ("root", SECRET, "ann", "pass", sha256(b"root").hexdigest()[:8]):
        assert secret not in shown


# --- public keys in a file ------------------------------------------------------------------------

EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
PUBLIC = {
    "rsa": RSAAlgorithm.to_jwk(RSA.public_key(), as_dict=True) | {"kid": "rsa"},
    "ec": ECAlgorithm.to_jwk(EC.public_key(), as_dict=True) | {"kid": "ec", "alg": "ES256"},
    "ed": OKPAlgorithm.to_jwk(ED.public_key(), as_dict=True) | {"kid": "ed", "use": "sig"},
}
for _key in PUBLIC.values():
    _key.pop("key_ops", None)


def write(path: Path, *keys: Any) -> str:
    path.write_text(json.dumps({"keys": keys}))
    return str(path)


def test_each_public_key_verifies_its_one_algorithm(tmp_path: Path) -> None:
    verifier = Verifier.of_file(write(tmp_path / "jwks", *PUBLIC.values()))
    signed = {"rsa": (RSA, "RS256"), "ec": (EC, "ES256"), "ed": (ED, "EdDSA")}
    for kid, (key, algorithm) in signed.items():
        assert verifier.verify(sign(key, algorithm, kid=kid)).id == "user:/ann"
    for bad in (
        sign(RSA, "RS256"),
        sign(RSA, "RS256", kid="other"),
        sign(RSA, "RS256", kid="ec"),
        sign(RSA, "RS512", kid="rsa"),
        sign(PUBLIC["rsa"]["n"], "HS256", kid="rsa"),
        sign(None, "none", kid="rsa"),
        sign(RSA, "RS256", kid="rsa", exp=1),
        sign(RSA, "RS256", kid="rsa")[:-8] + "AAAAAAAA",
    ):
        with pytest.raises(Refused):
            verifier.verify(bad)
    alone = Verifier.of_file(write(tmp_path / "one", PUBLIC["rsa"]))
    assert alone.verify(sign(RSA, "RS256")).id == "user:/ann"
    with pytest.raises(Refused):
        alone.verify(sign(RSA, "RS256", kid="other"))


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ([], "1 to 100 keys"),
        ([PUBLIC["rsa"], PUBLIC["rsa"]], "told apart"),
        ([PUBLIC["rsa"], {**PUBLIC["ec"], "kid": None}], "told apart"),
        ([{"kty": "oct", "k": "AAAA"}], "no public key"),
        ([{**PUBLIC["rsa"], "alg": "HS256"}], "is not for one of RS256"),
        ([{**PUBLIC["rsa"], "use": "enc"}], "for signatures"),
        ([{**PUBLIC["rsa"], "use": "both"}], "not for signatures"),
        ([RSAAlgorithm.to_jwk(RSA, as_dict=True)], "private key"),
        ([{**PUBLIC["rsa"], "n": "?"}], "cannot be read"),
        ([{**PUBLIC["rsa"], "n": PUBLIC["rsa"]["n"][:171]}], "fewer than 2048 bits"),
        ([{**PUBLIC["ec"], "crv": ["P-256"]}], "no public key"),
        ([{**PUBLIC["ec"], "kty": ["EC"]}], "no public key"),
        ([{**PUBLIC["rsa"], "kid": 7}], "no text"),
        ([7], "a list"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_named(
    keys: list[Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=problem):
        Verifier.of_file(write(tmp_path / "jwks", *keys))


def test_keys_for_other_uses_are_passed_over(tmp_path: Path) -> None:
    other = {"kty": "RSA", "use": "enc", "alg": "RSA-OAEP", "kid": "rsa"}
    verifier = Verifier.of_file(write(tmp_path / "jwks", other, PUBLIC["rsa"], PUBLIC["ec"]))
    assert verifier.verify(sign(RSA, "RS256", kid="rsa")).id == "user:/ann"


def test_a_token_of_a_clock_that_is_ahead_is_taken() -> None:
    assert make().identify(sign(iat=LATER)).id == "user:/ann"


def test_a_file_must_be_there_and_be_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="can be read"):
        Verifier.of_file(str(tmp_path / "nothing"))
    for text in ("", "[]", "{}", '{"keys": {}}', "[" * 100_000, " " * (1 << 20) + "{}"):
        (tmp_path / "jwks").write_text(text)
        with pytest.raises(ValueError, match="a JSON object"):
            Verifier.of_file(str(tmp_path / "jwks"))


@pytest.mark.parametrize("text", ["", "x" * 31, json.dumps({"kty": "oct", "k": "A" * 40})])
def test_a_secret_is_long_and_no_key_of_another_kind(text: str) -> None:
    with pytest.raises(ValueError, match="secret") as refusal:
        Verifier.of_secret(text)
    assert "x" * 31 not in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "ann",
        "ann:",
        ":pass",
        "ann:p:r:a:b",
        "ann:p a",
        "ann:pä",
        "a:b,a:c",
        "ann:p\tq",
        "ann:p:here/there",
    ],
)
def test_users_that_cannot_be_read_stay_unsaid(text: str) -> None:
    with pytest.raises(KeyringError) as refusal:
        UserTable.parse(text)
    assert "ann:" not in str(refusal.value)
