"""Invariant tested: the demo replaces pods, and neither loses nor gains one."""

from __future__ import annotations

import random

from shmcache.cli.demo.objects import Churn, pods


def test_a_replaced_pod_is_deleted_before_its_successor_comes() -> None:
    rng = random.Random(7)
    objects = list(pods(50, rng))
    churn = Churn(objects, rng)
    server = {obj["metadata"]["name"]: obj for obj in objects}
    names = set(server)
    for step in range(60):
        applied, deleted = churn.step(10, step)
        for obj in deleted:
            del server[obj["metadata"]["name"]]
        server.update((obj["metadata"]["name"], obj) for obj in applied)
        assert 50 == len(server)
    assert len(names - set(server)) > 5, "none was replaced"
