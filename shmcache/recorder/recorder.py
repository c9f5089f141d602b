"""The flight recorder: follows the ring as a reader, and writes reels.

One step() looks at the ring once. A reel gets a checkpoint first, then the changes of each look.

    RECORD1  The writer pays nothing: the recorder is a reader in a process of its own that looks at
        the ring by the clock. It sleeps on no bell, so no publication has to wake it.
    RECORD2  Acknowledged changes are on the medium, and are read back after any end of any process.
        `recorded_ns` never passes them.
    RECORD3  The states in a reel are states that the cache had, each whole (LINES1). A difference
        or a checkpoint replaces missed changes, and is stated as a gap.
    RECORD4  A disk that is full or fails stops the recorder only: it states so, and tries again.
        Changes that the ring still has by then are recorded; the rest is a gap.
    RECORD5  The next process goes on in the last reel where its end and the window of the ring
        meet; else a new reel states the gap before it.
    RECORD6  Times in a directory never go back, whatever the wall clock does. Where it was set
        forward between two looks, the step behind them says B, with or without changes: the clock
        may show the skipped times later, of other states.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from shmcache._hot import Delta, Root
from shmcache.errors import Lapped, StaleObjectError
from shmcache.reader.cache import Cache
from shmcache.recorder import encoding, lines
from shmcache.recorder.disk import Disk
from shmcache.recorder.ending import ReelEnd, last_end
from shmcache.recorder.reels import ReelWriter
from shmcache.recorder.shelf import RecorderLimits, Shelf
from shmcache.recorder.standing import FAILING, RECORDING, RecorderStatus, standing_of

PACKET = 256 << 10
"""Bytes of lines of which a packet is made at the latest."""
FLUSH_SECONDS = 1.0
BEAT_SECONDS = 5.0
"""Without changes, the time is noted so often."""
RETRY_SECONDS, RETRY_MOST = 1.0, 30.0
"""After a failure; each further one doubles it."""
HELD_SECONDS = 10.0
"""For so long a state is kept to take a difference to, while nothing can be written."""
BLIND_SECONDS = 0.9
"""A longer pause between two looks is stated (LINES3)."""
_TAKE = 512


def _uptime() -> float:
    """Seconds that nobody sets, of suspended times as well."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class _Lost(Exception):
    """The way from the last recorded state to this one is lost; the reason as text."""


class FlightRecorder:
    """Records one cache in one directory. For one thread, which calls step() again and again."""

    def __init__(
        self,
        cache: Cache,
        directory: str,
        limits: RecorderLimits | None = None,
        *,
        disk: Disk | None = None,
        wall_ns: Callable[[], int] = time.time_ns,
        clock: Callable[[], float] = _uptime,
    ) -> None:
        """BlockingIOError if another recorder writes in the directory.

        `clock` goes on while the machine sleeps, as `wall_ns` does.
        """
        self._cache = cache
        self._disk = disk or Disk()
        self._wall_ns, self._clock = wall_ns, clock
        self._shelf = Shelf(directory, limits or RecorderLimits(), self._disk)
        self.standing = RecorderStatus(directory)
        self._reel: ReelWriter | None = None
        self._number = 0
        self._checkpoint = 0
        self._begun_ns = 0
        self._root: Root | None = None
        self._held = 0.0
        self._instance = 0
        self._position = 0
        self._known: dict[int, tuple[object, object]] = {}
        self._lines: list[bytes] = []
        self._length = 0
        self._last_ns = self._seen_ns = self._looked_ns = 0
        self._looked: float | None = None
        self._jumped = False
        """The wall clock was set forward since the last look."""
        self._noted = self._flushed = self._retry = -1e9
        self._wait = RETRY_SECONDS
        self._gap = ""
        self._after: tuple[int, int] | None = None
        self._closed = False
        try:
            self._resume()
        except BaseException:
            self._shelf.close()
            raise

    def step(self) -> None:
        """Takes what the ring has, and writes what is due. `standing` tells of failures."""
        now = self._clock()
        if now < self._retry:
            self._let_go(now)
            return
        try:
            self._write_pending()
            self._look()
            if self._length >= PACKET or now - self._flushed >= FLUSH_SECONDS:
                self._flush(now)
        except OSError as error:
            self._fail(*standing_of(error))
        except StaleObjectError as error:
            self._fail(FAILING, f"a state was overwritten while it was being written: {error}")
        else:
            self.standing.state, self.standing.reason = RECORDING, ""
            self._wait = RETRY_SECONDS

    def _fail(self, state: str, reason: str) -> None:
        """RECORD4."""
        self.standing.state, self.standing.reason = state, reason
        self._retry = self._clock() + self._wait
        self._wait = min(2 * self._wait, RETRY_MOST)

    def close(self) -> None:
        """Records what the ring has, and ends the reel. Idempotent."""
        if self._closed:
            return
        self._closed, self._retry = True, -1e9
        self.step()
        if self._reel is not None:
            self._lines.append(b"E\n")
            self._length += 2
            try:
                self._flush(self._clock())
            except OSError as error:
                self._fail(*standing_of(error))
            self._reel.close()
        self._reel, self._root = None, None
        self._shelf.close()

    # ---- where the last one ended ----------------------------------------------------------------

    def _resume(self) -> None:
        """RECORD5."""
        for number in reversed(self._shelf.numbers):
            end = last_end(self._shelf.path(number))
            if end.whole_checkpoint:
                self._last_ns = self._looked_ns = end.time_ns
                self.standing.recorded_ns = end.time_ns
                if not self._gap:
                    self._continue(number, end)
                return
            if end.fault and not end.cut:
                self._gap = end.fault  # damaged: somebody may want to look at it
            else:
                self._shelf.remove(number)  # SHELF4

    def _continue(self, number: int, end: ReelEnd) -> None:
        root = self._cache.reader.root()
        self._after = (number, end.size)
        self._gap = _gap_before(end, root)
        if self._gap:
            return
        self._reel = ReelWriter.go_on(self._disk, self._shelf.path(number), end.size, end.checksum)
        self._number, self._checkpoint, self._begun_ns = number, end.checkpoint, end.begun_ns
        self._instance, self._position = end.instance, end.position
        self._known = {}

    # ---- from the ring ---------------------------------------------------------------------------

    def _look(self) -> None:
        """One step of the cache, from the last recorded state to the latest."""
        root = self._cache.reader.root()
        self._seen_ns = max(self._last_ns, self._wall_ns())
        self._jumped = self._is_jump()
        if self._reel is None or root.instance != self._instance:
            if self._reel is not None:
                self._gap = "the cache moved to a new instance"
            self._begin(root)
        elif root.head != self._position:
            try:
                self._take(root)
            except _Lost as lost:
                self._gap = str(lost)
                self._begin(root)
        elif self._closed or self._jumped or self._clock() - self._noted >= BEAT_SECONDS:
            self._step(root, [])
        self._looked_ns = self._seen_ns
        self._root, self._held = root, self._clock()
        self._looked = self._held
        if self._is_full():
            self._flush(self._clock())
            self._begin(root)

    def _is_jump(self) -> bool:
        """RECORD6."""
        if self._looked is None:
            return False
        passed = self._clock() - self._looked
        return self._seen_ns - self._looked_ns > (passed + BLIND_SECONDS) * 1e9

    def _take(self, root: Root) -> None:
        """The changes up to a root; _Lost if only a checkpoint can tell them."""
        try:
            found, relisted = self._changes(root)
            text = list(encoding.deltas(found))
        except Lapped:
            text = self._difference(root, "the ring overwrote them before they were read")
        except StaleObjectError:
            text = self._difference(root, "their memory was needed before they were read")
        else:
            text += self._relisted(root, relisted)
        self.standing.events += len(text)
        self._step(root, text)

    def _changes(self, root: Root) -> tuple[list[Delta], set[int]]:
        """Deltas of resources of which all are there, and the resources with a RELIST delta."""
        found: list[Delta] = []
        position = self._position
        while position < root.head:
            deltas, position = root.take(position, _TAKE)
            found += deltas
        relisted = {delta.resource for delta in found if delta.kind == "RELIST"}
        return [delta for delta in found if delta.resource not in relisted], relisted

    def _relisted(self, root: Root, relisted: set[int]) -> list[bytes]:
        if not relisted:
            return []
        names = root.names()
        which = ", ".join(names[number] for number in sorted(relisted))
        why = f"a list replaced the content of {which}"
        return self._difference(root, why, sorted(relisted))

    def _difference(self, root: Root, why: str, resources: list[int] | None = None) -> list[bytes]:
        """RECORD3: instead of changes that are not known one by one."""
        old = self._root
        if old is None or not old.valid:
            raise _Lost(why)
        wanted = range(len(root.names())) if resources is None else resources
        text: list[bytes] = []
        before = len(old.names())
        try:
            for number in wanted:
                if number >= before:
                    raise _Lost(why)
                text += encoding.differences(root, number, old)
        except StaleObjectError:
            raise _Lost(why) from None
        missed = {"why": why, "resources": resources}
        self.standing.gaps += 1
        return [lines.note("G", missed), *text]

    def _step(self, root: Root, text: list[bytes]) -> None:
        """LINES1."""
        blind = text and self._seen_ns - self._looked_ns > BLIND_SECONDS * 1e9
        if blind or self._jumped:
            self._lines.append(lines.blind(self._looked_ns))
        for number, name in enumerate(root.names()):
            if name:
                self._add_states(root, number)
        self._lines += text
        self._last_ns = self._seen_ns
        self._lines.append(lines.moment(self._last_ns, root.head, root.generation))
        self._length += sum(map(len, text)) + 1
        self._position, self._noted = root.head, self._clock()

    def _add_states(self, root: Root, number: int) -> None:
        """R and S where they have changed."""
        about, state = encoding.declared(root, number), encoding.state(root, number)
        before = self._known.get(number, (None, None))
        if about != before[0]:
            self._lines.append(lines.note("R", about, of=number))
        if state != before[1]:
            self._lines.append(lines.note("S", state, of=number))
        self._known[number] = (about, state)

    def _let_go(self, now: float) -> None:
        """The memory of an old state is not kept for as long as a disk is full."""
        if self._root is not None and now - self._held > HELD_SECONDS:
            self._root = None

    # ---- writing ---------------------------------------------------------------------------------

    def _write_pending(self) -> None:
        if self._reel is not None and self._reel.pending:
            self._write(self._reel, self._number)
            self._acknowledge(self._reel)

    def _flush(self, now: float) -> None:
        """One packet, written and acknowledged."""
        assert self._reel is not None
        if self._length:
            self._reel.add(b"".join(self._lines))
            self._lines, self._length = [], 0
        self._flushed = now
        self._write_pending()

    def _write(self, reel: ReelWriter, newest: int) -> None:
        """Within the bounds (SHELF2); `newest` is the newest reel with a whole checkpoint."""
        self._shelf.prune(newest, reel.pending, self._wall_ns())
        reel.write()

    def _acknowledge(self, reel: ReelWriter) -> None:
        """RECORD2."""
        reel.sync()
        shelf, standing = self._shelf, self.standing
        shelf.note(self._number, reel.size, self._begun_ns)
        standing.recorded_ns, standing.position = self._last_ns, self._position
        standing.bytes, standing.reels = shelf.bytes, len(shelf.numbers)
        standing.oldest_ns = shelf.oldest_ns

    def _is_full(self) -> bool:
        if self._reel is None:
            return False
        age = (self._last_ns - self._begun_ns) / 1e9
        changes = self._reel.size + self._reel.pending - self._checkpoint
        return self._shelf.limits.is_full(changes, self._checkpoint, age)

    # ---- a new reel ------------------------------------------------------------------------------

    def _begin(self, root: Root) -> None:
        """A new reel from this state on; the one before stays as it is until this one is whole."""
        if self._reel is not None:
            self._flush(self._clock())
            self._after = (self._number, self._reel.size)
        number = self._shelf.next_number()
        before = (self._known, self._position, self._noted)
        reel = ReelWriter.create(self._disk, self._shelf.path(number))
        try:
            self._known = {}
            self._fill(reel, number, root)
        except BaseException:
            self._abandon(reel, number)
            self._lines, self._length = [], 0
            self._known, self._position, self._noted = before
            raise
        if self._reel is not None:
            self._reel.close()
        self._reel, self._number = reel, number
        self._instance, self._checkpoint, self._begun_ns = root.instance, reel.size, self._last_ns
        self.standing.gaps += bool(self._gap)
        self._gap = ""
        self._acknowledge(reel)

    def _abandon(self, reel: ReelWriter, number: int) -> None:
        reel.close()
        try:
            self._shelf.remove(number)
        except OSError as error:  # the next recorder removes it (SHELF4)
            self.standing.reason = f"{error.filename}: {error.strerror}"

    def _fill(self, reel: ReelWriter, number: int, root: Root) -> None:
        """The checkpoint, on the medium when this returns."""
        newest = self._after[0] if self._after else number
        head = {
            "cache": self._cache.name,
            "instance": root.instance,
            "after": self._after,
            "gap": self._gap,
            "since": self._looked_ns,
            "time": self._seen_ns,
            "versions": {
                name: root.record(number)["version"]
                for number, name in enumerate(root.names())
                if name
            },
        }
        for packet in self._packets(self._checkpoint_lines(head, root)):
            reel.add(packet)
            self._write(reel, newest)
            self._shelf.note(number, reel.size, self._wall_ns())
        reel.sync()
        self._disk.sync_directory(self._shelf.directory)

    def _checkpoint_lines(self, head: dict[str, object], root: Root) -> Iterator[bytes]:
        yield lines.note("H", head)
        for number, name in enumerate(root.names()):
            if name:
                about = encoding.declared(root, number)
                self._known[number] = (about, None)
                yield lines.note("R", about, of=number)
                yield from encoding.objects(root, number)
        yield b"C\n"
        self._step(root, [])
        yield from self._lines
        self._lines, self._length = [], 0

    @staticmethod
    def _packets(text: Iterator[bytes]) -> Iterator[bytes]:
        held: list[bytes] = []
        length = 0
        for line in text:
            held.append(line)
            length += len(line)
            if length >= PACKET:
                yield b"".join(held)
                held, length = [], 0
        yield b"".join(held)


def _gap_before(end: ReelEnd, root: Root) -> str:
    """Why a recorder cannot go on where a reel ended; "" if it can."""
    if end.fault and not end.cut:
        return end.fault
    if end.instance != root.instance:
        return "the cache was made again while no recorder was running"
    if not root.tail <= end.position <= root.head:
        return "more has changed than the ring holds while no recorder was running"
    return ""
