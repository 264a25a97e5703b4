"""Channels that stay open between steps, and the frames expected on them.

A frame of an event stream is `{"event", "id", "data"}`, each if it was sent; `id` is decoded where
it is base64url JSON (`id_text` is what came), `data` where it is JSON. Comments and the retry
interval are frames of their own: `{"comment": "hb", "at": 17...}`, `{"retry": 2000}`. A message of
a WebSocket is its JSON. Expected frames are matched in order, except

    ["<unordered>", {...}, {...}]                 these, in any order
    {"event": "records", "data": {"records": ...}}  record frames of one topic, as many as it takes:
    {"op": "records", "records": [...]}           how records are spread over frames is not told,
                                                  nor whether a caught-up comes between them
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, Protocol

from .matching import find_differences

Frame = dict[str, Any]

FRAMES_S = 60.0


class Late(Exception):
    """Nothing came in time."""


class Ended(Exception):
    """The other side closed the channel; the message says how."""


class Channel(Protocol):
    """An open stream or socket."""

    def take(self, timeout_s: float) -> Frame:
        """The next frame. Raises Late or Ended instead."""

    def close(self) -> None: ...


class Reading:
    """Takes frames off a channel for one step, with one deadline for all of them."""

    def __init__(self, channel: Channel, *, every: bool = False) -> None:
        self.taken: list[Frame] = []
        self._channel = channel
        self._every = every
        self._deadline = time.monotonic() + FRAMES_S

    def differences(self, expected: list[Any]) -> list[str]:
        """How the frames that come next differ from those expected; stops where they do."""
        for index, pattern in enumerate(expected):
            at = f"frame {index + 1}"
            try:
                found = list(self._compare(pattern, at))
            except Late:
                found = [f"{at}: expected {json.dumps(pattern)}, got nothing in {FRAMES_S:.0f} s"]
            except Ended as end:
                found = [f"{at}: expected {json.dumps(pattern)}, got the end ({end})"]
            if found:
                return found
        return []

    def end(self) -> str:
        """How the channel ended; says what came instead where it did not."""
        try:
            return f"no end but {json.dumps(self._take())}"
        except Late:
            return f"no end in {FRAMES_S:.0f} s"
        except Ended as end:
            return str(end)

    def _compare(self, pattern: Any, at: str) -> Iterator[str]:
        if isinstance(pattern, list):
            if pattern[0] != "<unordered>":
                raise ValueError(f"{at}: unknown order {pattern[0]!r}")
            frames = [self._take() for _ in pattern[1:]]
            yield from find_differences(pattern, frames, at)
        elif "records" in (pattern.get("event"), pattern.get("op")):
            yield from find_differences(pattern, self._take_records(pattern), at)
        else:
            yield from find_differences(pattern, self._take(), at)

    def _take(self) -> Frame:
        while True:
            frame = self._channel.take(max(0.0, self._deadline - time.monotonic()))
            if self._every or not ("comment" in frame or "retry" in frame):
                self.taken.append(frame)
                return frame

    def _take_records(self, pattern: Frame) -> Frame:
        wanted = len(_payload(pattern)["records"])
        whole = self._take()
        while _is_record(whole) and len(_payload(whole)["records"]) < wanted:
            more = self._take()
            if _is_record(more) and _payload(more)["topic"] == _payload(whole)["topic"]:
                whole = _join(whole, more)
            elif not _is_caught_up(more):
                return more
        if _is_record(whole):
            whole = {**whole, "event" if "event" in whole else "op": "records"}
        return whole


def _is_caught_up(frame: Frame) -> bool:
    return "caught-up" in (frame.get("event"), frame.get("op", "").replace("_", "-"))


def _is_record(frame: Frame) -> bool:
    return "record" in (frame.get("event"), frame.get("op"))


def _payload(frame: Frame) -> Frame:
    return frame["data"] if "event" in frame else frame


def _join(first: Frame, second: Frame) -> Frame:
    """One record frame out of two that follow each other."""
    a, b = _payload(first), _payload(second)
    payload = {**b, "from_seq": a["from_seq"], "records": a["records"] + b["records"]}
    return {**second, "data": payload} if "event" in second else payload
