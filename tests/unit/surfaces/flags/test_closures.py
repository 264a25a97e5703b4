"""Closures for subscriptions: all flags need no search, whatever the order files came in."""

from __future__ import annotations

from unittest import mock

from headrace.flags.closure import closure_paths, hash_digests
from headrace.flags.subscription import EVERY_FLAG, parse_flag_list
from headrace.surfaces.flags import closures as module
from headrace.surfaces.flags.closures import Closures
from headrace.surfaces.flags.stream_metrics import StreamMetrics
from support.flag_streams import FlagsSite, flag, run, segment


def test_the_closure_of_all_flags_is_not_searched_for() -> None:
    async def script(site: FlagsSite) -> None:
        live = await site.make()
        await site.put({"flags/b.toml": flag("s"), "segments/s.toml": segment()})
        await site.put(
            {
                "flags/b.toml": flag("s"),
                "segments/s.toml": segment(),
                "segments/alone.toml": segment(),
                "flags/a.toml": flag(),
            }
        )
        manifest = await site.app._flags.store().manifests.load(live)
        with mock.patch.object(module, "closure_paths", wraps=closure_paths) as searched:
            whole = Closures(StreamMetrics()).of(live, manifest, EVERY_FLAG)
            assert searched.call_count == 0
            some = Closures(StreamMetrics()).of(live, manifest, parse_flag_list("a,b"))
            assert searched.call_count == 1
        assert whole.digests == manifest.digests
        assert some.digests.keys() == whole.digests.keys() - {"segments/alone.toml"}
        assert whole.hash == hash_digests(manifest.digests)
        assert some.hash == hash_digests(some.digests)

    run(script)
