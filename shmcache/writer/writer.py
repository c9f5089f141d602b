"""The writer of a cache: it stores objects, and each commit becomes one visible generation.

Objects are dicts, as orjson decodes them, under a key; a commit publishes a generation in DATA and
wakes the readers that sleep for it. A call either succeeds as a whole, or raises and leaves the
cache as it was. The writer never waits for a reader and never uses the network.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from shmcache import _hot, _native
from shmcache._native import check, ffi, lib
from shmcache.errors import BusyError, CacheFull, CorruptSegment, ShmCacheError
from shmcache.memory.mapping import FreshSegments, Inherited, Owned
from shmcache.memory.segments import Place
from shmcache.settings import IndexSpec, Resource, WriterSettings
from shmcache.writer import items as storing
from shmcache.writer import status
from shmcache.writer.catalogue import Declarations, Declared, text_of
from shmcache.writer.handle import Handle
from shmcache.writer.indexing import identity, looking, published
from shmcache.writer.relocating import Names
from shmcache.writer.staging import Staged
from shmcache.writer.takeover import Inheritance, adopt, take_over

if TYPE_CHECKING:
    from typing import Unpack

    from shmcache.protocol.items import Item
    from shmcache.settings import WriterOptions
    from shmcache.writer.status import Note

logger = logging.getLogger(__name__)

TEND_SECONDS = 0.2


class RingPosition(NamedTuple):
    """The head of the ring at a generation of an instance."""

    instance: int
    head: int
    generation: int


class Writer:
    """Owns the cache `name`: nobody else can write it, and closing it removes it.

    Takes over the verified cache of a writer that died or left, with all its objects; readers
    notice nothing, and `inherited` lists the resources. `fresh` builds a new cache instead, to
    which readers move.

    A name without '/' is POSIX shared memory, one with '/' a directory. Thread-safe: calls take
    turns. Usable as a context manager. Not usable in a child of fork().
    """

    def __init__(
        self,
        name: str,
        resources: Iterable[Resource | str] = (),
        *,
        fresh: bool = False,
        lock_fd: int | None = None,
        **options: Unpack[WriterOptions],
    ) -> None:
        """`lock_fd`: of the writer's lock, if it is held already; it becomes the Writer's."""
        settings, place = WriterSettings(**options), Place(name)
        self.inherited: dict[str, Inheritance] = {}
        """The resources whose content was taken over as it is."""
        self._stop = threading.Event()
        self._published = False
        self._tended = _native.OK
        lock_fd = place.take_lock() if lock_fd is None else lock_fd
        self._handle = Handle(place, settings, lock_fd)
        self._catalogue = Declarations(self._handle)
        self._names = Names()
        try:
            self._open([_resource(resource) for resource in resources], fresh=fresh)
        except BaseException:
            self._end(keep=self._published)
            raise
        how = ", after a takeover" if isinstance(self._handle.segments, Inherited) else ""
        logger.info("cache %s: writing, pid %d%s", self.name, os.getpid(), how)

    def _open(self, resources: list[Resource], *, fresh: bool) -> None:
        handle = self._handle
        check(lib.shmc_close_in_child(handle.lock_fd), "guarding the writer's lock")
        owned = (handle.place, handle.settings, handle.lock_fd)
        taken = None if fresh else take_over(*owned)
        if taken is None:
            self._begin(FreshSegments(*owned), resources)
        else:
            handle.open(*taken)
            self._published = True
            self.inherited = adopt(handle, self._catalogue, resources)
        handle.place.unlink_instances(keep=handle.mapped.current)
        threading.Thread(
            target=_tend, args=(weakref.ref(self), self._stop), name="shmcache-tend", daemon=True
        ).start()

    def _begin(self, fresh: FreshSegments, resources: list[Resource]) -> None:
        """Builds a new, empty cache for all later readers."""
        handle = self._handle
        handle.segments = fresh
        made = ffi.new("struct shmc_writer **")
        status = lib.shmc_writer_create(fresh.data, fresh.seats, fresh.settings, made)
        check(status, f"becoming the writer of cache {self.name!r}")
        handle.open(fresh, made[0])
        with self.batch():
            for resource in resources:
                self._catalogue.add(resource)
        handle.place.publish(fresh.current, handle.settings.mode)
        self._published = True

    @property
    def name(self) -> str:
        """The name of the cache; of a directory, its absolute path."""
        return self._handle.name

    @property
    def mode(self) -> int:
        """The mode of DATA's file."""
        return self._handle.settings.mode

    @property
    def place(self) -> Place:
        """Where the files of the cache are."""
        return self._handle.place

    @property
    def settings(self) -> WriterSettings:
        """The settings of this writer, with their defaults."""
        return self._handle.settings

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._handle.raw is None

    @contextmanager
    def batch(self) -> Iterator[Self]:
        """Everything inside becomes visible as one generation, or none of it does."""
        with self._handle.change("", whole=True):
            yield self

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._catalogue.declared)} resources"
        return f"<shmcache.Writer {self.name!r}: {state}>"

    # ---- objects ---------------------------------------------------------------------------

    def put(self, resource: str, key: str, obj: Any, version: str | None = None) -> bool:
        """Stores one object under `key`; whether that changed anything."""
        declared = self._catalogue.declared.get(resource) or self._catalogue.find(resource)
        if self._handle.depth == 0 and not declared.functions.emits:
            try:
                return self._put_now(declared, key, obj, version)
            except BusyError:  # the next batch undoes one that was left open
                logger.warning("cache %s: undoing a batch that was interrupted", self.name)
        return storing.put(self._handle, declared, key, obj, version)

    def _put_now(self, declared: Declared, key: str, obj: Any, version: str | None) -> bool:
        """put() as a batch of its own, in one call of the core: the way of a watch event."""
        handle = self._handle
        if not handle.alive[0]:
            handle.refuse_child()
        with handle.lock:
            if handle.raw is None or handle.inside:
                handle.usable()
            try:
                handle.inside = True
                now = monotonic_ns()
                return _hot.put_now(handle.address, declared.id, key, obj, version, None, now)
            except CacheFull as error:
                raise handle.explained(f"{declared.name}: {error}") from error
            finally:
                handle.inside = False

    def put_many(self, resource: str, items: Iterable[tuple[str, Any, str | None]]) -> int:
        """Stores (key, object, version) each, as one generation; how many changed anything."""
        declared = self._catalogue.find(resource)
        with self._handle.change(resource, whole=True):
            if not declared.functions:
                return _hot.put_many(self._handle.address, declared.id, items)
            return sum(self.put(resource, key, obj, version) for key, obj, version in items)

    def apply(self, resource: str, objects: Iterable[Mapping[str, Any]]) -> int:
        """Stores Kubernetes objects under namespace/name, as one generation; how many changed."""
        declared = self._catalogue.find(resource)
        with self._handle.change(resource, whole=True):
            if not declared.functions:
                batch = objects if isinstance(objects, list) else list(objects)
                return _hot.apply(self._handle.address, declared.id, batch)
            changed = 0
            for obj in objects:
                key, version = identity(obj)
                changed += self.put(resource, key, obj, version)
            return changed

    def apply_items(self, resource: str, items: list[Item], *, version: str | None = None) -> int:
        """Stores and deletes objects in their order, in one generation; how many changed anything.

        `version` becomes the resource's. An object that cannot be stored (not a JSON object, no
        name, nested too deep) is refused alone: logged, counted, and its key stays as it was.
        """
        declared = self._catalogue.find(resource)
        if not declared.functions and self._handle.depth == 0:
            try:
                return self._apply_now(declared, items, version)
            except BusyError:  # the next batch undoes one that was left open
                logger.warning("cache %s: undoing a batch that was interrupted", self.name)
        with self._handle.change(resource, whole=True):
            changed = storing.apply_items(self._handle, declared, items, None)
            if version is not None:
                status.set_version(self._handle, declared, version)
            return changed

    def _apply_now(self, declared: Declared, items: list[Item], version: str | None) -> int:
        """apply_items() as a batch of its own, in one call of the core: the way of a watch."""
        handle, drop = self._handle, not declared.keep_managed_fields
        handle.refuse_child()
        with handle.lock:
            handle.usable()
            try:
                handle.inside = True
                now = monotonic_ns()
                changed, refused = _hot.apply_now(
                    handle.address, declared.id, items, drop, version, now
                )
            except CacheFull as error:
                raise handle.explained(f"{declared.name}: {error}") from error
            finally:
                handle.inside = False
        storing.log_refused(declared, refused)
        return changed

    def delete(
        self, resource: str, key: str, version: str | None = None, *, unknown: bool = False
    ) -> bool:
        """Removes a key; whether it existed. `unknown`: its last state was not seen."""
        declared = self._catalogue.find(resource)
        return storing.delete(self._handle, declared, key, version, unknown=unknown)

    def replace(
        self, resource: str, objects: Iterable[Mapping[str, Any]], version: str | None = None
    ) -> None:
        """Makes the resource hold exactly these Kubernetes objects, in one generation."""
        with self.begin_replace(resource, version) as staged:
            staged.apply(objects)

    @contextmanager
    def begin_replace(
        self, resource: str, version: str | None = None, *, prefix: str = ""
    ) -> Iterator[Staged]:
        """Stages a whole new content while the old one is served; swapped in when it ends well.

        Other resources (and this one) may be written meanwhile; objects that are not staged are
        deleted. With a `prefix` ("prod/") only keys under it are replaced, and several prefixes
        may be staged at a time.
        """
        declared, handle = self._catalogue.find(resource), self._handle
        staged = Staged(handle, declared, version, prefix)
        share = prefix.encode()
        try:
            try:
                with handle.turn() as raw:
                    self._begin_share(raw, declared, staged)
                yield staged
                with handle.change(resource, whole=False) as raw:
                    last = text_of(staged.version)
                    done = lib.shmc_share_finish(raw, declared.id, share, len(share), *last)
                    check(done, f"{resource}: replace")
                    if staged.marks:
                        status.set_marks(handle, declared, staged.marks)
            except BaseException:
                self._cancel_share(declared, staged)
                raise
            finally:
                self._end_share(declared, staged)
        finally:
            self._end_share(declared, staged)  # a signal's exception may have come just before it

    def _begin_share(self, raw: _native.WriterHandle, declared: Declared, staged: Staged) -> None:
        prefix = staged.prefix
        self._handle.refuse_batch(f"{declared.name}: a replacement")
        if any(prefix.startswith(each) or each.startswith(prefix) for each in declared.shares):
            raise BusyError(f"{declared.name}: another replacement of {prefix!r} is being staged")
        while not declared.shares and lib.shmc_share_cancel(raw, declared.id, b"", 0) == _native.OK:
            pass  # one that a signal's exception interrupted before it could be cancelled
        declared.shares[prefix] = staged
        begin = lib.shmc_share_begin if prefix else lib.shmc_replace_begin
        check(begin(raw, declared.id), f"{declared.name}: replace")

    def _cancel_share(self, declared: Declared, staged: Staged) -> None:
        handle = self._handle
        if declared.shares.get(staged.prefix) is staged and handle.alive[0] and not self.closed:
            with handle.turn() as raw:
                share = staged.prefix.encode()
                lib.shmc_share_cancel(raw, declared.id, share, len(share))

    @staticmethod
    def _end_share(declared: Declared, staged: Staged) -> None:
        if declared.shares.get(staged.prefix) is staged:
            del declared.shares[staged.prefix]

    # ---- resources and indices -----------------------------------------------------------------

    def add_resource(self, resource: Resource | str) -> None:
        """Declares a resource and its indices; readers see it, empty, from the next generation."""
        self._catalogue.add(_resource(resource))

    def describe(self, resource: str, **more: Any) -> None:
        """Stores further JSON with the settings of a resource, for readers."""
        declared = self._catalogue.find(resource)
        settings = declared.settings | more
        if settings != declared.settings:
            with self._handle.change(resource, whole=True):
                self._catalogue.describe(declared, settings)

    def add_index(self, resource: str, index: str, spec: IndexSpec) -> None:
        """Declares one more index and fills it from the stored objects, as one generation.

        `spec`: a path, or a function (also "module:function"), which is then called for each
        object; a function cannot come inside a batch, whose objects nobody can read yet.
        """
        self._catalogue.add_index(self._catalogue.find(resource), index, spec)

    def objects(self, resource: str) -> Iterator[tuple[str, Any]]:
        """(key, View) of each object as last published; nothing may be written meanwhile."""
        with self._handle.turn():
            yield from published(self._handle.mapped, self._catalogue.find(resource).id)

    def position(self) -> RingPosition:
        """Where the ring is now."""
        with self._handle.turn(), looking(self._handle.mapped) as reader:
            root = reader.root()
            return RingPosition(root.instance, root.head, root.generation)

    # ---- duties --------------------------------------------------------------------------------

    def set_state(
        self, resource: str, state: int, version: str | None = None, reason: str = ""
    ) -> None:
        """Publishes the resource's state with its reason as text, and its version if one is given.

        A reason longer than 1,024 bytes is cut.
        """
        status.set_state(self._handle, self._catalogue.find(resource), state, version, reason)

    def note(self, resource: str, **increments: Unpack[Note]) -> None:
        """Counts the events of the resource's source: no generation, no wake-up, visible at once.

        `contact_ns` is the time of the last contact; it only rises. Note it after the bytes
        received until then were applied: a reader that sees it reads all of them (CONTACTBLOCK1 of
        contact.c).
        """
        status.note(self._handle, self._catalogue.find(resource), increments)

    def set_version(self, resource: str, version: str) -> None:
        """Publishes the resource's resourceVersion alone, which wakes nobody."""
        status.set_version(self._handle, self._catalogue.find(resource), version)

    def set_marks(self, resource: str, marks: str) -> None:
        """Stores how far each part of its source is, for the next writer; wakes nobody."""
        status.set_marks(self._handle, self._catalogue.find(resource), marks)

    def refused(self, resource: str) -> int:
        """How many items of the resource could not be stored so far."""
        return self._catalogue.find(resource).refused

    def stats(self) -> dict[str, int]:
        """The core's shmc_stats, failures of index functions, and refused items."""
        declared = self._catalogue.declared.values()
        with self._handle.turn():
            failures = sum(each.functions.failures for each in declared)
            refused = sum(each.refused for each in declared)
            return {**self._handle.stats(), "index_failures": failures, "items_refused": refused}

    def check(self) -> None:
        """Verifies every invariant by a walk over the whole cache; CorruptSegment names one."""
        found = ffi.new("char[256]")
        with self._handle.turn() as raw:
            self._handle.refuse_batch(f"cache {self.name!r}: check()")
            if lib.shmc_check(raw, found, 256):
                raise CorruptSegment(f"cache {self.name!r}: {ffi.string(found).decode()}")

    def reclaim(self) -> None:
        """Frees the memory that no pin needs any more, now instead of at the next turn."""
        with self._handle.turn() as raw:
            check(lib.shmc_reclaim(raw), f"cache {self.name!r}: reclaim")

    def drop_window(self) -> None:
        """Shortens the ring's window to nothing: consumers behind it are lapped."""
        with self._handle.turn() as raw:
            check(lib.shmc_drop_window(raw), f"cache {self.name!r}: drop_window")

    def _tend(self) -> bool:
        """One turn of the regular duties; False after the last one."""
        with self._handle.lock:
            raw = self._handle.raw
            if raw is None:
                return False
            tended = lib.shmc_tend(raw, monotonic_ns())
            continues = tended != _native.OK or (
                lib.shmc_in_batch(raw) or self._names.look(self._handle)
            )
        if tended != self._tended:
            self._tended = tended
            if tended:
                logger.error("%s", _native.failure(tended, f"cache {self.name!r}: tend"))
        return bool(continues) and tended not in (_native.FENCED, _native.CORRUPT)

    def close(self) -> None:
        """Ends the cache and removes its names; attached readers keep the last state. Idempotent.

        In a forked child it only forgets the handle: the parent's cache stays as it is.
        """
        self._end(keep=False)

    def leave(self) -> None:
        """Ends this writer and leaves the cache, with all its content, to the next one.

        The memory stays until somebody removes it (Place.remove()). Idempotent, as close().
        """
        self._end(keep=True)

    def _end(self, *, keep: bool) -> None:
        handle = self._handle
        if not handle.alive[0]:
            handle.raw = None
            return
        with handle.lock:
            if handle.lock_fd < 0:
                return
            if handle.depth or handle.inside:
                raise ShmCacheError(f"cache {self.name!r}: close() inside a batch")
            self._stop.set()
            if handle.raw is not None:
                if keep:
                    lib.shmc_writer_leave(handle.raw)
                _hot.forget(handle.address)
                lib.shmc_writer_destroy(handle.raw)
                handle.raw = None
            try:
                if handle.segments is not None:
                    self._give_back(handle.segments, keep=keep)
                else:
                    handle.place.discard_lock(handle.lock_fd)
            finally:
                lib.shmc_keep_in_child(handle.lock_fd)
                os.close(handle.lock_fd)
                handle.lock_fd = -1

    def _give_back(self, segments: Owned, *, keep: bool) -> None:
        """Removes the names, unless they are to stay or are another writer's.

        Another writer has them if it came after somebody removed our lock file.
        """
        place, lock_fd = self._handle.place, self._handle.lock_fd
        try:
            if not self._published or not place.is_ours(lock_fd, segments.current):
                place.discard(segments.current, lock_fd)
            elif not keep:
                place.unlink()
        finally:
            segments.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)  # missing after an error in __init__
        if handle is not None and handle.raw is not None and handle.alive[0]:
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2, source=self)
            self.close()


def _resource(resource: Resource | str) -> Resource:
    return Resource(resource) if isinstance(resource, str) else resource


def _tend(writer: weakref.ref[Writer], stop: threading.Event) -> None:
    """The thread: heartbeat, seats of dead workers, reclaiming; ends with the writer.

    It survives a MemoryError: nobody else would resume its duties.
    """
    while True:
        try:
            if stop.wait(TEND_SECONDS):
                return
            alive = writer()
            if alive is None or not alive._tend():  # noqa: SLF001 - its own thread
                return
            del alive
        except MemoryError:
            sleep(TEND_SECONDS)
