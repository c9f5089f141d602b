"""Invariant tested: states that a recorder acknowledged are read back exactly, whatever happened to
its process and its disk; damage and gaps are stated, and no state is ever nearly right."""

from __future__ import annotations

import fcntl
import os
import random
import re
import shutil
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flights import (
    FaultyDisk,
    Killed,
    RecordedScene,
    State,
    abandon,
    at,
    read_back,
)

from shmcache.errors import PastUnknown
from shmcache.monitor.metering import Meter
from shmcache.recorder import standing
from shmcache.recorder.disk import LOCK, reel_numbers, reel_path
from shmcache.recorder.history import FlightRecord
from shmcache.recorder.recorder import FlightRecorder
from shmcache.recorder.reels import HEAD_SIZE
from shmcache.recorder.shelf import RecorderLimits
from shmcache.recorder.standing import FULL, RECORDING, RecorderStatus, StandingFile

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 31))
KEEP: dict[str, Any] = {"keep": 1e6}
SMALL: dict[str, Any] = {"keep": 1e6, "bytes": 1 << 20}


@pytest.fixture
def make(name: str, tmp_path: Path) -> Iterator[Callable[..., RecordedScene]]:
    made: list[RecordedScene] = []

    def scene(**settings: object) -> RecordedScene:
        if made:
            made[-1].close()
        folder = str(tmp_path / f"record{len(made)}")
        made.append(RecordedScene(name, folder, SEED, **settings))
        return made[-1]

    yield scene
    for each in made[-1:]:
        each.close()


def check(scene: RecordedScene, upto_ns: int) -> int:
    """All states up to a time are exact, later ones exact or unknown; how many were exact."""
    record, exact = FlightRecord(scene.directory), 0
    for time_ns, state in scene.states.items():
        try:
            found = at(record, time_ns)
        except PastUnknown:
            assert time_ns > upto_ns, f"SEED={SEED}: an acknowledged state is unknown"
            continue
        assert found == state, f"SEED={SEED}: the state at {time_ns} is another one"
        exact += 1
    return exact


def test_each_state_is_read_back_record3(make: Callable[..., RecordedScene]) -> None:
    scene = make()
    recorder = scene.recorder(**KEEP)
    scene.run(recorder, 60)
    last = scene.now_ns
    scene.now += 0.5
    recorder.close()

    assert check(scene, last) == len(scene.states)
    assert FlightRecord(scene.directory).gaps() == []
    assert read_back(FlightRecord(scene.directory).last()) == scene.seen()
    with pytest.raises(PastUnknown, match="begins at"):
        FlightRecord(scene.directory).at_time(1)
    with pytest.raises(PastUnknown, match="the record ends at"):
        FlightRecord(scene.directory).at_time(scene.now_ns + 10**12)


def test_a_death_at_any_call_of_the_disk_loses_nothing_acknowledged_record2_record5(
    make: Callable[..., RecordedScene],
) -> None:
    """Each call in turn: create, write (in part), sync, truncate, unlink."""
    number, died = 0, True
    while died:
        number += 1
        died = _die_at(make(), number)
    assert number > 12


def _die_at(scene: RecordedScene, number: int) -> bool:
    disk = FaultyDisk(scene.rng)
    disk.die_at = number
    recorder: FlightRecorder | None = None
    acknowledged = 0
    try:
        recorder = scene.recorder(disk, **SMALL)
        scene.run(recorder, 12)
        scene.now += 0.5
        recorder.close()
    except Killed:
        assert recorder is not None
        abandon(recorder)
    else:
        check(scene, scene.now_ns - 1)
        return False
    acknowledged = recorder.standing.recorded_ns
    following = scene.recorder(**SMALL)
    assert following.standing.recorded_ns >= acknowledged
    scene.run(following, 6)
    last = scene.now_ns
    scene.now += 0.5
    following.close()
    check(scene, acknowledged)
    assert at(FlightRecord(scene.directory), last) == scene.states[last]
    assert _faults(scene) == []
    reels = FlightRecord(scene.directory).reels
    assert all(list(reel.steps()) for reel in reels), "SHELF4: a reel without a checkpoint stays"
    return True


def test_the_next_recorder_goes_on_without_a_gap_record5(
    make: Callable[..., RecordedScene],
) -> None:
    scene = make()
    for _ in range(3):
        recorder = scene.recorder(**KEEP)
        scene.run(recorder, 5)
        abandon(recorder)
        scene.change()
    recorder = scene.recorder(**KEEP)
    scene.run(recorder, 5)
    scene.now += 0.5
    recorder.close()

    record = FlightRecord(scene.directory)
    assert [reel.number for reel in record.reels] == [1]
    assert record.gaps() == []
    assert at(record, scene.now_ns - 1) == scene.seen()


def test_a_long_torn_packet_leaves_nothing_behind_reel3_record5(
    make: Callable[..., RecordedScene],
) -> None:
    """Longer than all that follows it: a packet whose head is whole, and half of its body."""
    scene = make()
    recorder = scene.recorder(**KEEP)
    scene.run(recorder, 5)
    recorder._flush(scene.now)
    acknowledged = recorder.standing.recorded_ns
    reel = recorder._reel
    assert reel is not None
    noise = scene.rng.randbytes(200_000)
    reel.add(noise)
    path = Path(reel.path)
    path.write_bytes(path.read_bytes() + reel._pending[:100_000])
    abandon(recorder)

    following = scene.recorder(**KEEP)
    scene.run(following, 3)
    last = scene.now_ns
    scene.now += 0.5
    following.close()
    assert _faults(scene) == []
    assert [each.number for each in FlightRecord(scene.directory).reels] == [1]
    check(scene, acknowledged)
    assert at(FlightRecord(scene.directory), last) == scene.states[last]


def test_changes_that_the_ring_lost_are_a_stated_gap_record3(
    make: Callable[..., RecordedScene],
) -> None:
    scene = make(ring_slots=64)
    recorder = scene.recorder(**KEEP)
    scene.run(recorder, 5)
    for _ in range(100):
        scene.change()  # more than the window holds
    scene.step(recorder)
    scene.run(recorder, 5)
    scene.now += 0.5
    recorder.close()

    told = recorder.standing
    assert told.gaps > 0
    file = StandingFile(scene.cache.place, 0o600)
    file.write(told)
    metrics = Meter(scene.cache).text()
    file.close()
    label = f'{{cache="{scene.cache.name}"}}'
    assert f"shmcache_recorder_up{label} 1\n" in metrics
    assert f"shmcache_recorder_gaps_total{label} {told.gaps}\n" in metrics
    assert f"shmcache_recorder_changes_total{label} {told.events}\n" in metrics
    assert f"shmcache_recorder_bytes{label} {told.bytes}\n" in metrics
    seen = re.findall(r"shmcache_recorder_(behind|reach)_seconds{[^}]*} ([0-9.e+]+)\n", metrics)
    behind, reach = (float(seconds) for _, seconds in seen)
    assert ["behind", "reach"] == [each for each, _ in seen]
    assert behind < reach  # both by the wall clock, which the scene has set long ago
    assert check(scene, scene.now_ns - 1) == len(scene.states)


def test_changes_lost_while_no_recorder_ran_are_a_stated_gap_record5(
    make: Callable[..., RecordedScene],
) -> None:
    scene = make(ring_slots=64)
    recorder = scene.recorder(**KEEP)
    scene.run(recorder, 5)
    scene.now += 0.5
    recorder.close()
    for _ in range(100):
        scene.change()
    scene.now += 100
    recorder = scene.recorder(**KEEP)
    scene.run(recorder, 5)
    scene.now += 0.5
    recorder.close()

    record = FlightRecord(scene.directory)
    [gap] = record.gaps()
    assert "more has changed than the ring holds" in gap.why
    with pytest.raises(PastUnknown, match="nothing is known from"):
        record.at_time(scene.now_ns - 50 * 10**9)
    assert check(scene, scene.now_ns - 1) == len(scene.states)


def test_a_list_that_replaces_everything_is_a_difference(
    make: Callable[..., RecordedScene],
) -> None:
    scene = make(ring_slots=64)
    recorder = scene.recorder(**KEEP)
    scene.run(recorder, 5)
    scene.version += 1
    fresh = []
    for number in range(100):
        obj = scene.object(f"d/r{number}")
        fresh.append(obj)
    scene.writer.replace("pods", fresh, str(scene.version))
    scene.step(recorder)
    scene.run(recorder, 5)
    scene.now += 0.5
    recorder.close()

    assert recorder.standing.gaps > 0
    assert check(scene, scene.now_ns - 1) == len(scene.states)


def test_reels_are_bounded_in_bytes_shelf2(make: Callable[..., RecordedScene]) -> None:
    scene = make()
    recorder = scene.recorder(keep=1e6, bytes=100_000)
    most = 0
    for _ in range(300):
        scene.change(40)
        scene.step(recorder)
        most = max(most, _size(scene.directory))
    last = scene.now_ns
    scene.now += 0.5
    recorder.close()

    assert most <= 100_000
    assert len(reel_numbers(scene.directory)) > 1
    assert recorder.standing.state == RECORDING
    record = FlightRecord(scene.directory)
    assert record.gaps() == []
    first = record.reels[0].time_ns
    known = {time_ns: state for time_ns, state in scene.states.items() if time_ns >= first}
    assert 10 < len(known) < len(scene.states)
    assert {time_ns: at(record, time_ns) for time_ns in known if time_ns <= last} == known


def test_reels_are_bounded_in_age_shelf2(make: Callable[..., RecordedScene]) -> None:
    scene = make()
    recorder = scene.recorder(keep=80.0)
    for _ in range(400):
        scene.change(4)
        scene.step(recorder, 1.0)
    scene.now += 0.5
    recorder.close()

    record = FlightRecord(scene.directory)
    oldest = (scene.now_ns - record.reels[0].time_ns) / 1e9
    assert 80 <= oldest <= 80 + 2 * 80 / 8 + 3
    assert record.gaps() == []


def _size(directory: str) -> int:
    return sum(os.stat(reel_path(directory, number)).st_size for number in reel_numbers(directory))


def test_bounds_that_are_too_small_are_stated_record4(make: Callable[..., RecordedScene]) -> None:
    scene = make()
    scene.change(400)
    recorder = scene.recorder(keep=1e6, bytes=50)
    scene.step(recorder)
    assert recorder.standing.state == FULL
    assert "recorder_bytes" in recorder.standing.reason
    assert _size(scene.directory) == 0
    recorder.close()


@pytest.mark.parametrize("room", [0, 10, 3_000, 6_000])
def test_a_full_disk_is_stated_and_survived_record4(
    make: Callable[..., RecordedScene], room: int
) -> None:
    scene = make()
    disk = FaultyDisk()
    disk.room = room
    recorder = scene.recorder(disk, **KEEP)
    while recorder.standing.state == RECORDING:
        scene.run(recorder, 1)
    scene.run(recorder, 10)
    assert recorder.standing.state == FULL
    assert recorder.standing.reason == "No space left on device"
    acknowledged = recorder.standing.recorded_ns
    if reel_numbers(scene.directory):
        check(scene, acknowledged)

    disk.room = 1 << 40
    scene.now += 60
    scene.run(recorder, 5)
    last = scene.now_ns
    scene.now += 0.5
    recorder.close()
    assert recorder.standing.state == RECORDING
    check(scene, acknowledged)
    assert at(FlightRecord(scene.directory), last) == scene.states[last]


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
def test_only_regular_files_are_reels_disk1(
    make: Callable[..., RecordedScene], tmp_path: Path, kind: str
) -> None:
    """And a recorder that was refused leaves no lock behind."""
    scene = make()
    path = Path(reel_path(scene.directory, 1))
    path.parent.mkdir(mode=0o700)
    fd = -1
    if kind == "fifo":
        os.mkfifo(path)
        fd = os.open(path, os.O_RDWR)
        os.write(fd, b"x" * 60_000)  # so that a reader would not block
    elif kind == "link":
        (tmp_path / "other").write_bytes(b"")
        path.symlink_to(tmp_path / "other")
    else:
        path.mkdir()
    with pytest.raises(OSError, match="symbolic" if kind == "link" else "regular file"):
        scene.recorder(**KEEP)
    path.rename(tmp_path / "away")
    if fd >= 0:
        os.close(fd)
    scene.recorder(**KEEP).close()


def test_a_directory_that_others_rule_is_refused_disk1(
    make: Callable[..., RecordedScene], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = make()
    folder = Path(scene.directory)
    folder.mkdir(mode=0o700)
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match=f"such as {folder}/flight, which is made.*chmod o-w"):
        scene.recorder(**KEEP)
    inside = FlightRecorder(scene.cache, str(folder / "flight"), RecorderLimits(**KEEP))
    inside.step()
    inside.close()
    assert (folder / "flight").stat().st_mode & 0o777 == 0o700
    assert not reel_numbers(str(folder))
    assert reel_numbers(str(folder / "flight"))
    folder.chmod(0o700)
    with monkeypatch.context() as patch:
        if os.geteuid() == 0:
            os.chown(folder, 12345, -1)
        else:
            patch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(PermissionError, match="belongs to uid"):
            scene.recorder(**KEEP)
    os.chown(folder, os.geteuid(), -1)
    scene.recorder(**KEEP).close()


@pytest.fixture
def small(make: Callable[..., RecordedScene]) -> RecordedScene:
    """Two small reels."""
    scene = make()
    recorder = scene.recorder(**KEEP)
    scene.run(recorder, 6)
    recorder._flush(scene.now)
    recorder._begin(scene.cache.reader.root())
    scene.run(recorder, 3)
    scene.now += 0.5
    recorder.close()
    return scene


def test_every_flipped_byte_is_found_reel1_reel2(small: RecordedScene) -> None:
    path = reel_path(small.directory, 1)
    whole = Path(path).read_bytes()
    assert _faults(small) == []
    for place in range(len(whole)):
        changed = bytes([whole[place] ^ (1 + place % 255)])
        Path(path).write_bytes(whole[:place] + changed + whole[place + 1 :])
        assert _faults(small) != [], f"byte {place} is not found"
        record = FlightRecord(small.directory)
        for time_ns in small.states:
            known = _is_known(small, record, time_ns)
            assert known or time_ns < record.reels[-1].time_ns
    Path(path).write_bytes(whole)


def _faults(scene: RecordedScene) -> list[str]:
    record = FlightRecord(scene.directory)
    for _ in record.play():
        pass
    return record.unreadable + [reel.fault for reel in record.reels if reel.fault]


def _is_known(scene: RecordedScene, record: FlightRecord, time_ns: int) -> bool:
    try:
        found = at(record, time_ns)
    except PastUnknown:
        return False
    assert found == scene.states[time_ns]
    return True


def test_each_cut_is_found_reel2_pastreel2(small: RecordedScene) -> None:
    path = reel_path(small.directory, 1)
    whole = Path(path).read_bytes()
    before = 0
    for size in range(len(whole)):
        Path(path).write_bytes(whole[:size])
        assert _faults(small) != [], f"a cut at {size} is not found"
        record = FlightRecord(small.directory)
        known = sum(_is_known(small, record, time_ns) for time_ns in small.states)
        assert before <= known
        before = known
    Path(path).write_bytes(whole)


def at_last(scene: RecordedScene) -> State:
    return read_back(FlightRecord(scene.directory).last())


@pytest.mark.parametrize("place", ["checkpoint", "length", "body"])
def test_a_damaged_reel_is_left_alone_and_a_new_one_begins_reel1(
    small: RecordedScene, place: str
) -> None:
    """A length that leads beyond the end of the file is damage, too, and nothing to cut off."""
    path = Path(reel_path(small.directory, 2))
    whole = bytearray(path.read_bytes())
    second = HEAD_SIZE + 12 + int.from_bytes(whole[HEAD_SIZE : HEAD_SIZE + 3], "little")
    at = {"checkpoint": HEAD_SIZE + 2, "length": second + 2, "body": len(whole) - 3}[place]
    assert at < len(whole)
    whole[at] ^= 0x40
    path.write_bytes(whole)
    recorder = small.recorder(**KEEP)
    small.run(recorder, 3)
    small.now += 0.5
    recorder.close()

    assert path.read_bytes() == whole
    record = FlightRecord(small.directory)
    readable = [1, 3] if place == "checkpoint" else [1, 2, 3]
    assert [reel.number for reel in record.reels] == readable
    assert len(record.unreadable) == 3 - len(readable)
    for _ in record.play():
        pass
    assert "damaged" in record.gaps()[0].why
    assert at_last(small) == small.seen()


def test_a_reel_of_other_bytes_is_refused_in_words(small: RecordedScene) -> None:
    Path(reel_path(small.directory, 1)).write_bytes(b"x" * 100)
    shutil.copy(reel_path(small.directory, 2), reel_path(small.directory, 3))
    record = FlightRecord(small.directory)
    assert record.unreadable == ["00000001.reel: its beginning is not whole"]
    assert HEAD_SIZE == 28


def test_a_directory_has_one_recorder_shelf3(make: Callable[..., RecordedScene]) -> None:
    scene = make()
    recorder = scene.recorder(**KEEP)
    with pytest.raises(BlockingIOError):
        scene.recorder(**KEEP)
    recorder.close()
    scene.recorder(**KEEP).close()


def test_the_lock_of_a_reader_of_the_directory_keeps_no_recorder_off_disk2(
    make: Callable[..., RecordedScene],
) -> None:
    scene = make()
    scene.recorder(**KEEP).close()
    Path(scene.directory).chmod(0o755)
    directory = os.open(scene.directory, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(directory, fcntl.LOCK_EX)  # another user may do this, too

    recorder = scene.recorder(**KEEP)

    with pytest.raises(BlockingIOError):
        scene.recorder(**KEEP)
    recorder.close()
    os.close(directory)
    lock = Path(scene.directory) / LOCK
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    lock.unlink()
    lock.symlink_to("/dev/null")
    with pytest.raises(OSError, match="symbolic links"):
        scene.recorder(**KEEP)


def test_the_lock_of_a_reader_of_the_report_keeps_no_recorder_off_stand1(
    make: Callable[..., RecordedScene],
) -> None:
    """A shared lock needs the right to read, which readers of the cache have."""
    scene = make()
    place = scene.cache.place
    StandingFile(place, 0o644).close()
    path = place.location.file(place.recorder)
    fd = os.open(path, os.O_RDONLY)
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_RDLCK, 0, 0, 1, 0))

    file = StandingFile(place, 0o644)

    file.write(RecorderStatus("/somewhere"))
    found = standing.read(place)
    assert found is not None
    assert (found.alive, found.directory) == (True, "/somewhere")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o644
    with pytest.raises(BlockingIOError):
        StandingFile(place, 0o644)
    file.close()
    os.close(fd)
    fd = os.open(path, os.O_RDONLY)
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_RDLCK, 0, 0, 1, 0))
    found = standing.read(place)
    assert found is not None
    assert not found.alive
    os.close(fd)


def test_times_never_go_back_record6(make: Callable[..., RecordedScene]) -> None:
    scene = make()
    recorder = scene.recorder(**KEEP)
    scene.run(recorder, 5)
    scene.states.clear()
    before = scene.now_ns
    scene.now -= 3600
    for _ in range(5):
        scene.change()
        scene.now += 2
        recorder.step()
    recorder.close()
    record = FlightRecord(scene.directory)
    times = [step.time_ns for _, step in record.play()]
    assert times == sorted(times)
    assert len(times) > 1
    assert times[-1] <= before


def test_times_that_a_set_clock_skipped_are_unknown_record6(
    make: Callable[..., RecordedScene],
) -> None:
    """It shows them again when it is set back: then of a state that was not yet."""
    scene = make()
    recorder = scene.recorder(**KEEP)
    scene.run(recorder, 5)
    before, state = scene.now_ns, scene.seen()
    scene.step(recorder, 0.25)
    scene.set_by = 3600.0
    for _ in range(40):  # nothing changes meanwhile
        scene.step(recorder, 0.25)
    scene.set_by = 0.0
    scene.change()
    for _ in range(40):
        scene.step(recorder, 0.25)
    recorder.close()
    record = FlightRecord(scene.directory)

    assert scene.seen() != state
    assert at(record, before) == state
    for skipped in (before + 10**9, scene.now_ns, before + 3000 * 10**9):
        with pytest.raises(PastUnknown, match="its clock was set"):
            record.at_time(skipped)
    assert read_back(record.last()) == scene.seen()


def test_a_machine_that_slept_knows_the_time_of_its_sleep_record6(
    make: Callable[..., RecordedScene],
) -> None:
    """Nothing changed then, and no clock was set."""
    scene = make()
    recorder = scene.recorder(**KEEP)
    scene.run(recorder, 5)
    before = scene.now_ns
    scene.step(recorder, 3600.0)
    scene.step(recorder, 10.0)
    recorder.close()

    assert at(FlightRecord(scene.directory), before + 1800 * 10**9) == scene.seen()


FILL = """
import os, sys
from flights import RecordedScene, at
from shmcache.recorder.history import FlightRecord
from shmcache.recorder.standing import FULL, RECORDING

scene = RecordedScene(sys.argv[2], sys.argv[1] + "/record", 7)
recorder = scene.recorder(keep=1e6)
scene.run(recorder, 5)
assert recorder.standing.state == RECORDING
hog = open(sys.argv[1] + "/hog", "wb", buffering=0)
try:
    while True:
        hog.write(bytes(4096))
except OSError:
    pass
while recorder.standing.state == RECORDING:
    scene.change(40)
    scene.step(recorder, 1.0)
assert recorder.standing.state == FULL, recorder.standing.state
assert recorder.standing.reason == "No space left on device", recorder.standing.reason
last = recorder.standing.recorded_ns
for time_ns, state in scene.states.items():
    if time_ns <= last:
        assert at(FlightRecord(scene.directory), time_ns) == state
hog.truncate(0)
scene.now += 60
scene.step(recorder, 2.0)
assert recorder.standing.state == RECORDING, recorder.standing.reason
last = scene.now_ns
scene.now += 1
recorder.close()
for time_ns, state in scene.states.items():
    assert at(FlightRecord(scene.directory), time_ns) == state
scene.close()
print("good")
"""
ROOT = Path(__file__).resolve().parents[3]
MOUNT = 'mount -t tmpfs -o size=1m shmcache-test "$1" && shift && exec "$@"'


def test_a_full_file_system_is_survived_record4(tmp_path: Path, name: str) -> None:
    def inside(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["unshare", "-m", "sh", "-c", MOUNT, "sh", str(tmp_path), *command],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests/support"},
        )

    try:
        tried = inside("true")
    except FileNotFoundError:
        pytest.skip("there is no unshare, to mount a small file system with")
    if tried.returncode != 0:
        pytest.skip(f"mounting a small file system is not permitted: {tried.stderr.strip()}")
    done = inside(sys.executable, "-c", FILL, str(tmp_path), name)
    assert (0, "good\n", "") == (done.returncode, done.stdout, done.stderr)
