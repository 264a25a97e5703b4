"""Servers for the conformance tests: one for each environment, started when first needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest

from .servers import ServerUnderTest, SharedServer


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    """A running server with the environment asked for; equal environments get the same one."""
    servers: dict[frozenset[tuple[str, str]], ServerUnderTest] = {}
    with ExitStack() as stack:

        def server_for(env: Mapping[str, str]) -> ServerUnderTest:
            key = frozenset(env.items())
            if key not in servers:
                data_dir = tmp_path_factory.mktemp("conformance") / "data"
                servers[key] = stack.enter_context(ServerUnderTest(data_dir, env=dict(env)))
            return servers[key]

        yield server_for
