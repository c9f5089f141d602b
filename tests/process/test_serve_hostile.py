"""The short form of `make hostile`: slow and greedy clients of a server in its own process."""

from __future__ import annotations

import multiprocessing

import hostile
import pytest
import serve_hostile

CONNECTIONS = 200
LIMIT = 64 << 20
"""Bytes beyond idle, whatever the number of connections."""


@pytest.mark.slow
def test_slow_and_greedy_clients_cost_little_and_do_not_block_probes() -> None:
    with hostile.target() as target, hostile.Others(target.port) as others:
        cost = hostile.cost(target, hostile.PLAIN, CONNECTIONS, 4.0)

    assert cost.peak - cost.idle < LIMIT, cost
    assert not [one for one in others.refused if one.startswith("probe")]
    assert len(others.probes) > 5
    assert len(others.waits) > 10


@pytest.mark.slow
def test_clients_without_a_token_do_not_starve_others(tmp_path: object) -> None:
    tokens = f"{tmp_path}/tokens"
    with open(tokens, "w", encoding="utf-8") as file:
        file.write("secret,ann\n")
    spawn = multiprocessing.get_context("spawn")
    with hostile.target("--tokens", tokens) as target:
        crowd = spawn.Process(target=serve_hostile.misbehave,
                              args=(target.port, hostile.GUARDED, 64, 4.0))  # fmt: skip
        crowd.start()
        with hostile.Others(target.port, "secret") as others:
            crowd.join()

    assert not others.refused
    assert len(others.waits) > 50  # it is answered all the time, and not only afterwards
