"""Subscriptions: what is asked for in a URL, every cap, and every reason to refuse it."""

from __future__ import annotations

import pytest

from headrace.core.limits import SUBSCRIBED_FLAGS_MAX, SUBSCRIBED_NAMESPACES_MAX
from headrace.flags.subscription import (
    EVERY_FLAG,
    FlagSet,
    FlagSubscription,
    SubscriptionRefused,
    decode_subscription,
    encode_subscription,
    parse_flag_list,
    parse_subscription,
)

VECTORS = {
    "*": "Kg",
    "checkout-redesign": "Y2hlY2tvdXQtcmVkZXNpZ24",
    "checkout-redesign,homepage-banner-copy": (
        "Y2hlY2tvdXQtcmVkZXNpZ24saG9tZXBhZ2UtYmFubmVyLWNvcHk"
    ),
}


@pytest.mark.parametrize(("text", "encoded"), VECTORS.items())
def test_encodings_of_the_protocol(text: str, encoded: str) -> None:
    flags = parse_flag_list(text)
    assert flags.canonical == text
    assert encode_subscription(flags) == encoded
    assert decode_subscription(encoded) == flags


def test_a_set_of_flags_has_one_text() -> None:
    assert parse_flag_list("b,a,b").canonical == "a,b"
    assert parse_flag_list("b,a,b") == FlagSet(("a", "b"))
    assert hash(parse_flag_list("b,a")) == hash(parse_flag_list("a,b"))
    assert parse_flag_list("a_b,a-b").canonical == "a-b,a_b"


@pytest.mark.parametrize(
    "text", ["", ",", "a,", ",a", "*,a", "a,*", "**", "A", "1a", "a b", "ä", "a" * 64, "a\n"]
)
def test_malformed_lists(text: str) -> None:
    with pytest.raises(SubscriptionRefused) as refused:
        parse_flag_list(text)
    assert (refused.value.code, refused.value.reason) == ("invalid_subscription", "malformed")


@pytest.mark.parametrize(
    "text", ["Kg=", "Kg==", "K", "Kh", "+/", "", "Kg\n", "ÿ", "_w", "A" * 9000]
)
def test_malformed_encodings(text: str) -> None:
    with pytest.raises(SubscriptionRefused) as refused:
        decode_subscription(text)
    assert refused.value.reason == "malformed"


def test_many_flags_are_refused_once_there_are_too_many_different_ones() -> None:
    keys = [f"f{n}" for n in range(SUBSCRIBED_FLAGS_MAX)]
    assert parse_subscription([f"a:{','.join(keys * 2)}"]).namespaces["a"] == FlagSet(
        tuple(sorted(keys))
    )
    with pytest.raises(SubscriptionRefused) as refused:
        parse_subscription([f"a:{','.join(keys)},more"])
    assert refused.value.code == "invalid_subscription"
    assert refused.value.details == {"reason": "too_many_flags", "namespace": "a"}


def test_many_namespaces_are_refused() -> None:
    slugs = [f"n{n}:*" for n in range(SUBSCRIBED_NAMESPACES_MAX)]
    assert len(parse_subscription(slugs).namespaces) == SUBSCRIBED_NAMESPACES_MAX
    with pytest.raises(SubscriptionRefused) as refused:
        parse_subscription([*slugs, "more:*"])
    assert refused.value.details == {"reason": "too_many_namespaces"}


def test_what_is_asked_for() -> None:
    asked = parse_subscription(
        ["billing:b,a", "growth:*"], ["billing:41,other:7", "growth:0"], "billing:42"
    )
    assert asked == FlagSubscription(
        {"billing": FlagSet(("a", "b")), "growth": EVERY_FLAG}, {"billing": 42, "growth": 0}
    )
    assert parse_subscription(["a:*"], [], "").since == {}
    assert parse_subscription(["a:*"], ["a:1,a:2"]).since == {"a": 2}


def test_who_has_no_tenant_names_one() -> None:
    asked = parse_subscription(["acme/a:*", "acme/b:x"], ["a:1,acme/b:2"], names_tenant=True)
    assert asked == FlagSubscription(
        {"a": EVERY_FLAG, "b": FlagSet(("x",))}, {"a": 1, "b": 2}, "acme"
    )


@pytest.mark.parametrize(
    ("namespaces", "names_tenant", "details"),
    [
        (["a"], False, {"reason": "malformed"}),
        (["A:*"], False, {"reason": "malformed"}),
        ([":*"], False, {"reason": "malformed"}),
        (["a:"], False, {"reason": "malformed", "namespace": "a"}),
        (["a:x:y"], False, {"reason": "malformed", "namespace": "a"}),
        (["a:*,x"], False, {"reason": "malformed", "namespace": "a"}),
        (["acme/a:*"], False, {"reason": "malformed"}),
        (["acme/a/b:*"], True, {"reason": "malformed"}),
        (["/a:*"], True, {"reason": "malformed"}),
        (["a:*"], True, {"reason": "tenant_required", "namespace": "a"}),
        (["a:*", "a:x"], False, {"reason": "duplicate_namespace", "namespace": "a"}),
        (["acme/a:*", "acme/a:x"], True, {"reason": "duplicate_namespace", "namespace": "a"}),
        (["acme/a:*", "other/a:*"], True, {"reason": "cross_tenant"}),
    ],
)
def test_subscriptions_that_are_none(
    namespaces: list[str], names_tenant: bool, details: dict[str, str]
) -> None:
    with pytest.raises(SubscriptionRefused) as refused:
        parse_subscription(namespaces, names_tenant=names_tenant)
    assert refused.value.code == "invalid_subscription"
    assert refused.value.details == details


def test_a_subscription_to_nothing_is_no_request() -> None:
    with pytest.raises(SubscriptionRefused) as refused:
        parse_subscription([])
    assert (refused.value.code, refused.value.details) == ("invalid_request", {})
    assert refused.value.reason is None


@pytest.mark.parametrize(
    "hint",
    ["", "a", "a:", ":1", "a:-1", "a:+1", "a:1.0", "a:1,", "a:b:1", "A:1", "a:٣", "a:" + "9" * 99],
)
def test_malformed_hints(hint: str) -> None:
    with pytest.raises(SubscriptionRefused) as refused:
        parse_subscription(["a:*"], [hint])
    assert (refused.value.code, refused.value.details) == ("invalid_request", {})
    if hint:
        with pytest.raises(SubscriptionRefused, match="Last-Event-ID"):
            parse_subscription(["a:*"], ["a:1"], hint)
