"""The notifications of the benchmark: a server takes them, and ten watchers want each."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

from headrace.surfaces.notifications.configuration import read_configuration
from headrace.surfaces.notifications.identifiers import parse_notified, parse_wanted
from headrace_bench import notices
from headrace_bench.matching import Matching
from headrace_bench.scenarios.notifications import _count_events


def test_a_server_takes_what_the_benchmark_sends(tmp_path: Path) -> None:
    configuration = read_configuration(notices.write_config(tmp_path))
    storm = configuration.event_types[notices.EVENT_TYPE]
    wanted = [parse_wanted(storm, storm.name, each) for each in notices.all_watchers()]
    assert len(set(wanted)) == len(wanted) == 1000
    assert sum(each.shape is not None for each in wanted) == 400
    for place in (0, 500, notices.PLACES_MAX - 1):
        assert parse_notified(storm, storm.name, notices.notified(place)).bbox is not None


def test_ten_want_each() -> None:
    matching = Matching()
    for block in matching._blocks[::33]:
        assert matching._find(block) == matching._ask_each(block) == 10


def test_a_replay_is_counted_however_it_is_cut() -> None:
    text = b"HTTP/1.1 200 OK\r\n\r\n" + b"event: replay\ndata: {}\n\n" * 3
    text += b"event: connection-closing\ndata: {}\n\n"
    for size in (1, 2, 7, 1000):
        link = mock.Mock()
        link.recv.side_effect = [text[at : at + size] for at in range(0, len(text), size)]
        assert _count_events(link) == 3
