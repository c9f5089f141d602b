"""Invariant tested: `cache.at()` shows exactly the state of that moment, or raises PastUnknown
(REWIND1 to REWIND3, INSTANT1 to INSTANT4); the commands that show the past agree with it.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any

import pytest

import shmcache
from shmcache.engine.instant_writer import InstantWriter
from shmcache.memory.segments import Place
from shmcache.reader import instants

Object = dict[str, Any]


def pod(number: int, version: int, **labels: str) -> Object:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": f"p-{number}",
            "namespace": f"ns-{number % 3}",
            "resourceVersion": str(version),
            "labels": labels,
        },
        "spec": {"nodeName": f"node-{version % 4}"},
    }


class Twin:
    """A cache that is written at random, and every state that it had."""

    def __init__(self, writer: shmcache.Writer, rng: random.Random) -> None:
        self.writer = writer
        self.rng = rng
        self.version = 100
        self.now: dict[str, Object] = {}
        self.states: dict[int, dict[str, Object]] = {}
        self.generations: dict[int, int] = {}
        self.list()

    def list(self) -> None:
        self.writer.replace("pods", list(self.now.values()), version=str(self.version))
        self.keep()

    def keep(self) -> None:
        self.states[self.version] = dict(self.now)
        self.generations[self.writer.position().generation] = self.version

    def step(self) -> None:
        self.version += self.rng.randrange(1, 3)
        number = self.rng.randrange(12)
        obj = pod(number, self.version, app=self.rng.choice(["a", "b"]))
        key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        with self.writer.batch():
            if key in self.now and self.rng.random() < 0.4:
                del self.now[key]
                self.writer.delete("pods", key, str(self.version))
            else:
                self.now[key] = obj
                self.writer.apply("pods", [obj])
            self.writer.set_version("pods", str(self.version))
        self.keep()


def shown(past: Any) -> dict[str, Object]:
    return {key: obj.to_dict() for key, obj in past.items()}


def test_every_state_of_the_window_is_exact(
    writer: shmcache.Writer, cache: shmcache.Cache, rng: random.Random
) -> None:
    """REWIND1: by version and by generation, against the states that there were."""
    twin = Twin(writer, rng)
    for _ in range(120):
        twin.step()
    for version, state in twin.states.items():
        with cache.at(str(version)) as at:
            pods = at["pods"]
            assert state == shown(pods)
            assert sorted(state) == list(pods) == list(pods.keys())
            assert len(state) == len(pods)
            assert all(state[key] == pods[key] for key in state)
            assert all((key in pods) == (key in state) for key in twin.now)
            for namespace in (None, "ns-1"):
                expected = [
                    state[key]
                    for key in sorted(state)
                    if (namespace is None or key.startswith("ns-1/"))
                    and state[key]["metadata"]["labels"]["app"] == "a"
                ]
                assert expected == [one.to_dict() for one in pods.list(namespace, "app=a")]
    for generation, version in twin.generations.items():
        assert twin.states[version] == shown(cache.at(generation=generation)["pods"])


def test_versions_between_two_changes_show_the_state_between(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    twin = Twin(writer, random.Random(1))
    twin.version = 200
    twin.step()
    first = twin.version
    twin.version = 300
    twin.step()
    assert twin.states[first] == shown(cache.at("250")["pods"])


def test_the_past_that_is_gone_is_an_error(name: str, rng: random.Random) -> None:
    """REWIND2, REWIND3: never a state that is nearly right."""
    with (
        shmcache.Writer(name, ["pods"], arena_max="64MiB", ring_slots=64) as writer,
        shmcache.attach(name) as cache,
    ):
        twin = Twin(writer, rng)
        for _ in range(300):
            twin.step()
        outcomes = {True: 0, False: 0}
        for version, state in twin.states.items():
            try:
                assert state == shown(cache.at(str(version))["pods"])
                outcomes[True] += 1
            except shmcache.PastUnknown as error:
                assert "ring_slots" in str(error)
                outcomes[False] += 1
        assert min(outcomes.values()) > 20
        with pytest.raises(shmcache.PastUnknown, match="still to come"):
            cache.at(str(twin.version + 10))["pods"]


def test_a_relist_hides_the_versions_before_it(
    writer: shmcache.Writer, cache: shmcache.Cache, rng: random.Random
) -> None:
    twin = Twin(writer, rng)
    for _ in range(5):
        twin.step()
    before = twin.version
    twin.version += 5
    twin.now.pop(next(iter(twin.now)))
    twin.list()
    assert twin.now == shown(cache.at(str(twin.version))["pods"])
    with pytest.raises(shmcache.PastUnknown):
        cache.at(str(before))["pods"]


@pytest.mark.parametrize(("second", "known"), [(205, True), (200, False), (150, False)])
def test_versions_that_do_not_rise_hide_the_past(
    writer: shmcache.Writer, cache: shmcache.Cache, second: int, known: bool
) -> None:
    """Of a server that went back, or of two changes at one version, no state between is known."""
    first = pod(1, 100)
    writer.replace("pods", [first], version="100")
    for number, version in ((2, 200), (3, second)):
        with writer.batch():
            writer.apply("pods", [pod(number, version)])
            writer.set_version("pods", "210")
    if known:
        assert {"ns-1/p-1": first} == shown(cache.at("180")["pods"])
    else:
        with pytest.raises(shmcache.PastUnknown):
            cache.at("180")["pods"]


@pytest.mark.parametrize(
    "wrong",
    [{}, {"version": "7", "seconds_ago": 1}, {"version": 7}, {"seconds_ago": "1"}],
)
def test_a_moment_that_makes_no_sense_is_a_type_error(
    cache: shmcache.Cache, wrong: dict[str, Any]
) -> None:
    with pytest.raises(TypeError):
        cache.at(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"version": "x"}, {"seconds_ago": -1}, {"seconds_ago": float("nan")}, {"generation": 1 << 50}],
)
def test_an_impossible_moment_is_a_value_error(
    cache: shmcache.Cache, wrong: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"."):
        cache.at(**wrong)


# ---- times -----------------------------------------------------------------------------------


def test_a_time_leads_to_the_state_of_that_time(
    name: str, writer: shmcache.Writer, cache: shmcache.Cache, rng: random.Random
) -> None:
    """INSTANT1 and INSTANT4."""
    twin = Twin(writer, rng)
    step = time.monotonic() / 7  # since the boot of this machine, which may be minutes ago
    now = begin = step
    noting = InstantWriter(Place(name), 0o600, lambda: int(now * 1e9))
    with pytest.raises(shmcache.PastUnknown, match="are not noted"):
        cache.at(seconds_ago=1)
    moments = []
    for number in range(5):
        now = begin + step * number
        twin.step()
        noting.note(writer.position())
        moments.append((now + step / 2, dict(twin.now)))
    noting.close()
    for moment, state in moments:
        assert state == shown(cache.at(seconds_ago=time.monotonic() - moment)["pods"])
    with pytest.raises(shmcache.PastUnknown, match="only"):
        cache.at(seconds_ago=time.monotonic() - begin / 2)


def test_instants_survive_damage_and_wrap_around(
    name: str, writer: shmcache.Writer, cache: shmcache.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INSTANT2 and INSTANT3: a torn instant, another instance, a file that is full or cut."""
    monkeypatch.setattr(instants, "INSTANTS", 8)
    place, where = Place(name), writer.position()
    noting = InstantWriter(place, 0o600)
    for number in range(11):
        noting.note(where._replace(head=where.head + number))
    noting.close()
    root = cache.reader.root()
    assert list(range(where.head + 3, where.head + 11)) == [
        one.head for one in instants.read(place, root)
    ]
    again = InstantWriter(place, 0o600)
    again.note(where._replace(head=where.head + 50))
    again.note(where._replace(instance=where.instance + 1, head=where.head + 51))
    again.close()
    heads = [one.head for one in instants.read(place, root)]
    assert where.head + 50 == heads[-1]
    assert 7 == len(heads)
    path = place.location.file(place.times)
    with open(path, "r+b") as file:
        file.seek(5)
        file.write(b"\xff")
    assert 6 <= len(instants.read(place, root)) < 7 + 1
    os.truncate(path, instants.SIZE * 3 + 5)
    assert len(instants.read(place, root)) <= 3
    os.truncate(path, 0)
    assert [] == instants.read(place, root)


def test_instants_of_an_older_file_with_another_mode_are_replaced(
    name: str, writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    place = Place(name)
    for mode in (0o600, 0o644):
        noting = InstantWriter(place, mode)
        noting.note(writer.position())
        noting.close()
        assert mode == os.stat(place.location.file(place.times)).st_mode & 0o777
        assert 1 == len(instants.read(place, cache.reader.root()))
