"""Invariant tested: the commands show from a flight record exactly what the cache had: states,
differences and changes of each object, at times and versions; a replayed cache has them again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flights import RecordedScene, at, read_back

import shmcache
from shmcache.__main__ import main
from shmcache.errors import PastUnknown
from shmcache.recorder.changes import changes_of
from shmcache.recorder.disk import reel_path
from shmcache.recorder.history import FlightRecord, clock
from shmcache.recorder.player import Player
from shmcache.recorder.rebuilding import RebuiltCache
from shmcache.recorder.versioned import at_version

SEED = 20_261_119
KEEP: dict[str, Any] = {"keep": 1e6}


@pytest.fixture
def scene(name: str, tmp_path: Path) -> Iterator[RecordedScene]:
    """A closed record of two reels, in which each look saw changes."""
    made = RecordedScene(name, str(tmp_path / "record"), SEED)
    made.now = float(int(time.time()) - 3600)
    recorder = made.recorder(**KEEP)
    for number in range(30):
        made.change(1000 if number == 0 else 10)
        made.change(10)
        made.step(recorder, 0.5)
        if number == 15:
            recorder._flush(made.now)
            recorder._begin(made.cache.reader.root())
    made.now += 0.5
    recorder.close()
    yield made
    made.close()


def shown(cache: shmcache.Cache) -> dict[str, dict[str, Any]]:
    return {
        kind: {key: view.to_dict() for key, view in cache[kind].items()} for kind in cache.resources
    }


def test_a_rebuilt_cache_shows_each_state_rebuild2(scene: RecordedScene) -> None:
    record = FlightRecord(scene.directory)
    for time_ns, state in scene.states.items():
        with RebuiltCache() as rebuilt:
            rebuilt.show(record.at_time(time_ns))
            assert shown(rebuilt.cache) == state


def test_a_player_goes_through_each_state_play1(scene: RecordedScene, name: str) -> None:
    record = FlightRecord(scene.directory)
    times = list(scene.states)
    with Player(record, f"{name}-played") as player:
        for time_ns in times:
            assert list(player.play(until_ns=time_ns)) == []
            assert shown(player.cache) == scene.states[time_ns]
            assert player.clock <= clock(time_ns)


def test_a_player_begins_at_any_state_play1(scene: RecordedScene, name: str) -> None:
    record = FlightRecord(scene.directory)
    times = list(scene.states)
    for number in (0, 7, 15, 16, 29):
        with Player(record, f"{name}-played", since_ns=times[number]) as player:
            assert shown(player.cache) == scene.states[times[number]]
            assert list(player.play()) == []
            assert shown(player.cache) == scene.states[times[-1]]


def test_a_player_keeps_the_pace_that_is_wanted(scene: RecordedScene, name: str) -> None:
    pauses: list[float] = []
    with Player(FlightRecord(scene.directory), f"{name}-played") as player:
        list(player.play(speed=10, wait=pauses.append))
    assert sum(pauses) == pytest.approx(15 / 10, rel=0.05)


def test_gaps_and_damage_are_stated_while_playing_play2(scene: RecordedScene, name: str) -> None:
    path = Path(reel_path(scene.directory, 1))
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    record = FlightRecord(scene.directory)
    with Player(record, f"{name}-played") as player:
        [warning] = list(player.play())
        assert "00000001.reel" in warning
        assert "checksum" in warning
        assert shown(player.cache) == scene.states[list(scene.states)[-1]]
    with Player(record, f"{name}-played", since_ns=list(scene.states)[20]) as player:
        assert list(player.play()) == []  # it begins after the damage


def test_a_version_shows_its_changes_and_no_later_ones_atversion1(scene: RecordedScene) -> None:
    record = FlightRecord(scene.directory)
    for time_ns in list(scene.states)[3:-2:5]:
        version = max(
            int(obj["metadata"]["resourceVersion"])
            for objects in scene.states[time_ns].values()
            for obj in objects.values()
        )
        found = read_back(at_version(record, str(version)))
        for objects in found.values():
            for obj in objects.values():
                assert int(obj["metadata"]["resourceVersion"]) <= version
        for kind, objects in scene.states[time_ns].items():
            for key, obj in objects.items():
                assert found[kind][key] == obj
    with pytest.raises(PastUnknown, match="ends before version"):
        at_version(record, str(10**9))
    with pytest.raises(PastUnknown, match="does not lead back"):
        at_version(record, "1")


def test_blame_has_each_change_of_an_object(scene: RecordedScene) -> None:
    record = FlightRecord(scene.directory)
    for key in ("d/n1", "d/n7"):
        times, value = iter(scene.states.items()), None
        changes = list(changes_of(record, "pods", key))
        for time_ns, state in times:
            for change in [one for one in changes if one.time_ns == time_ns]:
                assert change.old == value or not change.kind
                value = change.new
            assert value == state["pods"].get(key)
        assert {change.why for change in changes} == {""}
        assert {change.kind for change in changes[1:]} <= {"ADDED", "MODIFIED", "DELETED"}


def test_blame_shows_what_has_become_of_an_object_behind_a_damaged_place(
    scene: RecordedScene,
) -> None:
    path = Path(reel_path(scene.directory, 1))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    record, kinds = FlightRecord(scene.directory), set()
    for key in [f"d/n{number}" for number in range(20)]:
        changes = list(changes_of(record, "pods", key))
        [found] = [change for change in changes if change.why]
        assert "checksum" in found.why
        before = changes[changes.index(found) - 1]
        assert found.old == before.new
        assert found.new == scene.states[found.time_ns]["pods"].get(key)
        kinds.add((found.old is not None, found.kind, found.new is not None))
    assert {
        (False, "ADDED", True), (True, "MODIFIED", True), (True, "DELETED", False),
    } <= kinds <= {
        (False, "ADDED", True), (True, "MODIFIED", True), (True, "DELETED", False),
        (True, "", True), (False, "", False),
    }  # fmt: skip


# ---- commands ------------------------------------------------------------------------------------


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    out, err = capsys.readouterr()
    return status, out, err


def test_get_shows_a_recorded_state(
    scene: RecordedScene, capsys: pytest.CaptureFixture[str]
) -> None:
    times = list(scene.states)
    when = clock(times[9] + 999_000_000)
    record = ("--recorder", scene.directory)
    status, out, err = command(capsys, "get", "pods", "-A", *record, "--at", when, "-o", "json")
    assert (status, err) == (0, "")
    wanted = at(FlightRecord(scene.directory), _time(when))
    assert json.loads(out)["items"] == [wanted["pods"][key] for key in sorted(wanted["pods"])]

    status, out, err = command(capsys, "get", "pods", "-A", *record, "-o", "name")
    assert (status, err) == (0, "")
    assert len(out.splitlines()) == len(scene.states[times[-1]]["pods"])


def _time(text: str) -> int:
    from shmcache.cli.output.past import moment

    return moment(text).time_ns


def test_diff_shows_what_changed_between_two_states(
    scene: RecordedScene, capsys: pytest.CaptureFixture[str]
) -> None:
    times = list(scene.states)
    first, second = clock(times[5] + 10**9), clock(times[20] + 10**9)
    record = FlightRecord(scene.directory)
    then, now = at(record, _time(first)), at(record, _time(second))
    status, out, err = command(
        capsys, "diff", "pods", "--recorder", scene.directory, "--since", first,
        "--until", second, "--names-only",
    )  # fmt: skip
    assert (status, err) == (1, "")
    keys = then["pods"].keys() | now["pods"].keys()
    wanted = {
        f"{'+' if key not in then['pods'] else '-' if key not in now['pods'] else '~'} pods {key}"
        for key in keys
        if then["pods"].get(key) != now["pods"].get(key)
    }
    assert set(out.splitlines()) == wanted


def test_blame_shows_changes_of_the_record(
    scene: RecordedScene, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = command(capsys, "blame", "pods", "d/n7", "--recorder", scene.directory)
    assert (status, err) == (0, "")
    changes = list(changes_of(FlightRecord(scene.directory), "pods", "d/n7"))
    heads = [line for line in out.splitlines() if not line.startswith(" ")]
    assert heads == [
        f"{clock(one.time_ns)}  {one.kind}  version {one.version}  by -"
        for one in changes
        if one.kind
    ]
    status, out, err = command(capsys, "blame", "pods", "d/none", "--recorder", scene.directory)
    assert (status, out) == (1, "")
    assert "not found" in err


def test_replay_feeds_a_cache(
    scene: RecordedScene, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = command(capsys, "replay", scene.directory, "--cache", f"{name}-r", "--exit")
    assert (status, out) == (0, "")
    assert err.splitlines()[-1].endswith(f"{clock(scene.now_ns)}, the end")


@pytest.mark.parametrize(
    ("words", "words_back"),
    [
        (("get", "pods", "--recorder", "/nowhere"), "the directory /nowhere does not exist"),
        (("get", "pods", "--recorder", "{}", "--cache", "x"), "replaces --cache"),
        (("get", "pods", "--recorder", "{}", "-w"), "--watch the future"),
        (("get", "pods", "--recorder", "{}", "--at", "Tuesday"), "must be a duration"),
        (("get", "pods", "--recorder", "{}", "--at", "-9h"), "begins at"),
        (("get", "pods", "--recorder", "{}", "--at", "-1s"), "the record ends at"),
        (("get", "pods", "--recorder", "{}", "--max-age", "90s"), "a flight record only ages"),
        (("diff", "--since", "-5m", "--until", "-1m"), "--until needs a flight record"),
        (("replay", "{}"), "name it with --cache"),
        (("replay", "{}", "--cache", "x", "--speed", "0"), "must be a number greater than 0"),
        (("replay", "{}", "--cache", "x", "--at", "4711"), "replay goes by times"),
        (("replay", __file__, "--cache", "x"), "shmcache run --replay"),
    ],
)
def test_mistakes_are_answered_in_words(
    scene: RecordedScene,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    words_back: str,
) -> None:
    try:
        status = main([word.format(scene.directory) for word in words])
    except SystemExit as ended:
        status = int(str(ended.code))
    assert status != 0
    assert words_back in capsys.readouterr().err
