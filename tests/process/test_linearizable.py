"""Invariant tested: reads of several processes under faults can have happened one after the other
(G50): the campaign of consistent reads, in a short form.
"""

from __future__ import annotations

import random

from consistency import campaign


def test_consistent_reads_under_faults_are_linearizable(name: str, rng: random.Random) -> None:
    log = campaign(name, operations=4000, processes=2, seed=rng.getrandbits(32), seconds=15)

    assert [] == log.wrong()
    assert log.counts["consistent get"] + log.counts["consistent list"] > 5, log.counts
    assert log.counts["write"] > 10, log.counts
