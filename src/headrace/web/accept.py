"""What a client accepts, and which of what there is it likes best."""

from __future__ import annotations

from headrace.core.limits import ACCEPT_LENGTH_MAX


def prefers(accept: str, *media: str) -> str | None:
    """Which of these media types fits an `Accept` best; nothing if none does.

    What is long is not looked at: nobody is known yet.
    """
    if len(accept) > ACCEPT_LENGTH_MAX:
        return None
    ranges = [_parse_range(part) for part in accept.split(",")]
    best, best_quality = None, 0.0
    for each in media:
        quality = _quality(each, ranges)
        if quality > best_quality:
            best, best_quality = each, quality
    return best


def _parse_range(text: str) -> tuple[str, str, float]:
    """Type, subtype and quality of a range; what is none fits nothing."""
    media, *params = [part.strip().lower() for part in text.split(";")]
    main, slash, sub = media.partition("/")
    if not (slash and main and sub):
        return "", "", 0.0
    quality = 1.0
    for param in params:
        name, _, value = param.partition("=")
        if name.strip() == "q":
            try:
                quality = min(max(float(value), 0.0), 1.0)
            except ValueError:
                return "", "", 0.0
    return main, sub, quality


def _quality(media: str, ranges: list[tuple[str, str, float]]) -> float:
    """How welcome a media type is, by the range that fits it most closely."""
    main, _, sub = media.partition("/")
    closest, found = -1, 0.0
    for range_main, range_sub, quality in ranges:
        if (range_main, range_sub) == (main, sub):
            closeness = 2
        elif (range_main, range_sub) == (main, "*"):
            closeness = 1
        elif (range_main, range_sub) == ("*", "*"):
            closeness = 0
        else:
            continue
        if closeness > closest:
            closest, found = closeness, quality
    return found
