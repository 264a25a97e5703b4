"""Chaos on the queues of a real server: every job ends once, acked or as a dead letter.

`HEADRACE_CHAOS_JOBS` asks for more jobs, `HEADRACE_CHAOS_SEED` repeats a plan (what the processes
make of it differs from run to run).
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from headrace_bench.process import ServerProcess

from .chaos import ASKERS, STAYERS, Chaos, Peer
from .launching import Servers, run_headrace

pytestmark = pytest.mark.system

JOBS = int(os.environ.get("HEADRACE_CHAOS_JOBS", "1500"))
SEED = os.environ.get("HEADRACE_CHAOS_SEED")
KILLS = 4
LIMIT_S = 600.0

COMMON = {"type": "queue", "max_deliveries": 4, "dead_letter": "dead"}
QUEUES = {
    "quick": {**COMMON},
    "fair": {**COMMON, "claim_jitter_ms": 20, "dead_letter": "dead-fair"},
    "sure": {**COMMON, "durable": True, "leases_durable": True, "dead_letter": "dead-sure"},
}
SETTINGS = {"HEADRACE_SEAL_BYTES": "64KiB", "HEADRACE_TAIL_BYTES": "32KiB"}
"""So small that jobs are sealed, and claimed and acked from segments too."""


async def run_chaos(server: ServerProcess, chaos: Chaos) -> None:
    chaos.server_up(server.port)
    with Peer(chaos) as peer:
        for name, config in QUEUES.items():
            await peer.ask("PUT", f"/v0/topics/{name}", config)
            await peer.ask("PUT", f"/v0/topics/{config['dead_letter']}", {})
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        producing = tasks.create_task(chaos.produce(JOBS))
        for number in range(ASKERS + STAYERS):
            tasks.create_task(chaos.work(number))
        for kill in range(1, KILLS + 1):
            await chaos.wait_for(JOBS * kill // (KILLS + 2))
            await asyncio.to_thread(server.kill)
            chaos.server_down()
            await asyncio.to_thread(server.start)
            chaos.server_up(server.port)
        await producing
        await chaos.wait_until_empty()
    await chaos.find_all()


def test_every_job_ends_once_whatever_dies(data_dir: Path, new_server: Servers) -> None:
    seed = random.randrange(1 << 32) if SEED is None else int(SEED)
    server = new_server(**SETTINGS).start()
    chaos = Chaos(seed, QUEUES)
    asyncio.run(run_chaos(server, chaos))
    plot = f"HEADRACE_CHAOS_SEED={seed}, {dict(chaos.seen)}"
    assert not chaos.complaints, f"{plot}\n" + "\n".join(chaos.complaints[:20])
    assert chaos.seen["delivered again"], f"{plot}: nothing went wrong"
    assert server.stop() == 0
    assert "Traceback" not in server.output(), server.output()[-5000:]
    verified = run_headrace("verify", "--data-dir", str(data_dir))
    assert verified.returncode == 0, f"{plot}: {verified.stdout}"
