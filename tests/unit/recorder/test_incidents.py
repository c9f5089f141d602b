"""Invariant tested: an API server made of a flight record has the recorded objects and makes the
recorded changes, so that a cache of it becomes what the recorded cache was, at each moment."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flights import RecordedScene, at

from shmcache.errors import PastUnknown
from shmcache.recorder.history import FlightRecord
from shmcache.testing import Cluster, Incident

SEED = 20_261_119
PLUGGED = (
    []
    if any(
        each.value == "shmcache.testing.plugin"
        for each in importlib.metadata.entry_points(group="pytest11")
    )
    else ["-p", "shmcache.testing.plugin"]
)
"""The plugin by hand in an environment that was installed before it was there."""


@pytest.fixture
def scene(name: str, tmp_path: Path) -> Iterator[RecordedScene]:
    made = RecordedScene(name, str(tmp_path / "record"), SEED, ring_slots=64)
    made.version = 1000
    recorder = made.recorder(keep=1e6)
    for number in range(20):
        made.change(10)
        made.step(recorder, 0.5)
        if number == 10:
            recorder._flush(made.now)
            recorder._begin(made.cache.reader.root())
        if number == 14:
            made.now += 60
            for _ in range(40):
                made.change(10)  # more than the ring holds
    made.now += 0.5
    recorder.close()
    yield made
    made.close()


def moment(time_ns: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(time_ns / 1e9, dt.UTC)


def same(server: list[dict[str, Any]], recorded: dict[str, Any]) -> bool:
    def keyed(objects: Any) -> dict[str, Any]:
        return {
            f"{one['metadata'].get('namespace', '')}/{one['metadata']['name']}": (
                one.get("spec"),
                one.get("status"),
            )
            for one in objects
        }

    return keyed(server) == keyed(recorded.values())


def test_the_server_goes_through_the_record_incident1(scene: RecordedScene) -> None:
    record = FlightRecord(scene.directory)
    with Incident(scene.directory) as incident:
        server = incident.cluster.server
        assert incident.resources == ("pods", "nodes")
        for time_ns in scene.states:
            incident.play(moment(time_ns))
            try:
                wanted = at(record, time_ns)
            except PastUnknown:
                continue
            assert same(server.list("pods"), wanted["pods"])
        assert incident.play() == 0
        [why] = incident.missing
        assert "overwrote" in why


def test_the_recorded_versions_are_kept_where_they_rise_incident1(scene: RecordedScene) -> None:
    with Incident(scene.directory) as incident:
        for time_ns in list(scene.states)[:14]:
            incident.play(moment(time_ns))
            recorded = scene.states[time_ns]["pods"]
            assert {
                one["metadata"]["name"]: one["metadata"]["resourceVersion"]
                for one in incident.cluster.server.list("pods")
            } == {key[2:]: obj["metadata"]["resourceVersion"] for key, obj in recorded.items()}


def test_a_cache_of_the_server_sees_the_changes_incident2(scene: RecordedScene) -> None:
    times = list(scene.states)
    record = FlightRecord(scene.directory)
    with Incident(scene.directory, since=moment(times[3])) as incident:
        cache = incident.cluster.reflect("pods")
        for time_ns in (times[3], times[8], times[-1]):
            incident.play(moment(time_ns))
            incident.cluster.settle(60)
            shown = [view.to_dict() for view in cache["pods"].list()]
            assert same(shown, at(record, time_ns)["pods"])


def test_a_cluster_of_the_caller_is_filled_and_stays(scene: RecordedScene) -> None:
    with Cluster() as cluster:
        with Incident(scene.directory, cluster=cluster) as incident:
            incident.play()
        assert cluster.server.list("pods")


def test_the_pace_is_the_recorded_one_or_faster(scene: RecordedScene) -> None:
    pauses: list[float] = []
    with Incident(scene.directory) as incident:
        incident.play(speed=10, wait=pauses.append)
    assert sum(pauses) == pytest.approx((20 * 0.5 + 60) / 10, rel=0.1)


def test_a_time_without_a_zone_is_refused(scene: RecordedScene) -> None:
    with pytest.raises(ValueError, match="needs a time zone"):
        Incident(scene.directory, since=dt.datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(PastUnknown, match="has no flight record"):
        Incident(str(Path(scene.directory).parent))


PLUGIN = """
import pytest

@pytest.mark.shmcache("pods", record="record")
def test_incident(shmcache_incident, shmcache_cache):
    before = len(shmcache_cache["pods"])
    assert shmcache_incident.play() > 0
    shmcache_incident.cluster.settle(60)
    assert before != {count}
    assert len(shmcache_cache["pods"]) == {count}
"""


def test_the_fixture_of_the_plugin_plays_a_record(scene: RecordedScene, tmp_path: Path) -> None:
    count = len(scene.states[list(scene.states)[-1]]["pods"])
    (tmp_path / "test_inner.py").write_text(PLUGIN.replace("{count}", str(count)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PLUGGED, "test_inner.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
