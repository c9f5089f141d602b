"""The one write handle of a cache: objects go in, each commit becomes one visible generation.

What comes in are dicts, as orjson decodes them, under a key; what goes out are generations in DATA
and wake-ups of those who sleep for them. A call either happens as a whole or raises and leaves the
cache as it was. The writer never waits for a reader, and never looks into the network.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING, Any, Self

from shmcache import _hot, _native
from shmcache._native import NULL, check, ffi, lib
from shmcache.applying import apply_items, log_refused
from shmcache.contacts import Contacts
from shmcache.errors import BusyError, CacheFull, CorruptSegment, ShmCacheError
from shmcache.indexing import Functions, identity, identity_of, published, resolve
from shmcache.inheriting import Inheritance, adopt, settings_of, take_over
from shmcache.mapping import Fresh, Inherited
from shmcache.names import Names
from shmcache.segments import Place, beside
from shmcache.settings import IndexSpec, Resource, WriterSettings, check_index_spec, check_label
from shmcache.staging import Staged

if TYPE_CHECKING:
    from typing import Unpack

    from shmcache.protocol.items import Item
    from shmcache.settings import WriterOptions

logger = logging.getLogger(__name__)

TEND_SECONDS = 0.2


class Declared:
    """A resource of this writer: its id, and the index functions that run here."""

    __slots__ = (
        "functions",
        "id",
        "keep_managed_fields",
        "name",
        "refused",
        "settings",
        "shares",
    )

    def __init__(self, resource: Resource, number: int) -> None:
        self.name = name = resource.name
        self.id = number
        self.keep_managed_fields = resource.keep_managed_fields
        self.refused = 0  # items that could not be stored
        self.shares: set[str] = set()  # prefixes whose new content is being staged
        self.functions = Functions(name)
        self.settings: dict[str, Any] = {}  # as they are stored


class Writer(Contacts):
    """Owns the cache `name`: nobody else can write it, and closing it removes it.

    Goes on with what a writer left that died or leave()d, verified, with all its objects, for
    readers as if nothing had happened: `inherited` says what of it. `fresh` builds a new cache
    instead, to which readers move.

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
        super().__init__(Place(name), WriterSettings(**options))
        self.inherited: dict[str, Inheritance] = {}
        """The resources whose content was taken over as it is."""
        self._declared: dict[str, Declared] = {}
        self._stop = threading.Event()
        self._segments: Fresh | Inherited | None = None
        self._published = False
        self._tended = _native.OK
        self._names = Names()
        beside()
        self._lock_fd = self.place.take_lock() if lock_fd is None else lock_fd
        try:
            self._open([_resource(resource) for resource in resources], fresh=fresh)
        except BaseException:
            self._end(keep=self._published)
            raise
        how = ", going on" if self._went_on() else ""
        logger.info("cache %s: writing, pid %d%s", self.name, self._pid, how)

    def _open(self, resources: list[Resource], *, fresh: bool) -> None:
        check(lib.shmc_close_in_child(self._lock_fd), "guarding the writer's lock")
        owned = (self.place, self.settings, self._lock_fd)
        taken = None if fresh else take_over(*owned)
        if taken is None:
            self._begin(Fresh(*owned), resources)
        else:
            self._segments, self._handle = taken
            self._address = _native.address(self._handle)
            self._published = True
            self.inherited = adopt(self, resources)
        assert self._segments is not None
        self.place.unlink_instances(keep=self._segments.current)
        threading.Thread(
            target=_tend, args=(weakref.ref(self), self._stop), name="shmcache-tend", daemon=True
        ).start()

    def _begin(self, fresh: Fresh, resources: list[Resource]) -> None:
        """A new cache, empty, for everybody who attaches from now on."""
        self._segments = fresh
        made = ffi.new("struct shmc_writer **")
        status = lib.shmc_writer_create(fresh.data, fresh.seats, fresh.settings, made)
        check(status, f"becoming the writer of cache {self.name!r}")
        self._handle = made[0]
        self._address = _native.address(made[0])
        with self.batch():
            for resource in resources:
                self.add_resource(resource)
        self.place.publish(fresh.current, self.settings.mode)
        self._published = True

    def _went_on(self) -> bool:
        return isinstance(self._segments, Inherited)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._declared)} resources"
        return f"<shmcache.Writer {self.name!r}: {state}>"

    # ---- objects ---------------------------------------------------------------------------

    def put(self, resource: str, key: str, obj: Any, version: str | None = None) -> bool:
        """Stores one object under `key`; whether that changed anything."""
        declared = self._declared.get(resource) or self._resource(resource)
        if self._depth == 0 and not declared.functions.emits:
            try:
                return self._put_now(declared, key, obj, version)
            except BusyError:  # a batch was left open: what follows undoes it first
                logger.warning("cache %s: undoing a batch that was interrupted", self.name)
        with self._change(resource, whole=False):
            emitted = self._emit(declared, key, obj) if declared.functions else None
            return _hot.put(self._address, declared.id, key, obj, version, emitted)

    def _put_now(self, declared: Declared, key: str, obj: Any, version: str | None) -> bool:
        """put() as a batch of its own, in one call: what a watch event costs."""
        if not self._alive[0]:
            self._refuse_child()
        with self._lock:
            if self._handle is None or self._inside:
                self._usable()
            try:
                self._inside = True
                now = monotonic_ns()
                return _hot.put_now(self._address, declared.id, key, obj, version, None, now)
            except CacheFull as error:
                raise self._explained(f"{declared.name}: {error}") from error
            finally:
                self._inside = False

    def put_many(self, resource: str, items: Iterable[tuple[str, Any, str | None]]) -> int:
        """Stores (key, object, version) each, as one generation; how many changed anything."""
        declared = self._resource(resource)
        with self._change(resource, whole=True):
            if not declared.functions:
                return _hot.put_many(self._address, declared.id, items)
            return sum(self.put(resource, key, obj, version) for key, obj, version in items)

    def apply(self, resource: str, objects: Iterable[Mapping[str, Any]]) -> int:
        """Stores Kubernetes objects under namespace/name, as one generation; how many changed."""
        declared = self._resource(resource)
        with self._change(resource, whole=True):
            if not declared.functions:
                batch = objects if isinstance(objects, list) else list(objects)
                return _hot.apply(self._address, declared.id, batch)
            changed = 0
            for obj in objects:
                key, version = identity(obj)
                changed += self.put(resource, key, obj, version)
            return changed

    def apply_items(self, resource: str, items: list[Item], *, version: str | None = None) -> int:
        """Stores and deletes objects as they came, in one generation; how many changed anything.

        `version` becomes the resource's. An object that cannot be stored (no JSON object, no name,
        nested too deep) is refused alone: logged, counted, and its key stays as it was.
        """
        declared = self._declared.get(resource) or self._resource(resource)
        if not declared.functions and self._depth == 0:
            try:
                return self._apply_now(declared, items, version)
            except BusyError:  # a batch was left open: what follows undoes it first
                logger.warning("cache %s: undoing a batch that was interrupted", self.name)
        with self._change(resource, whole=True) as handle:
            changes = apply_items(self, declared, items, None)
            if version is not None:
                check(lib.shmc_set_version(handle, declared.id, *_text(version)), resource)
            return changes

    def _apply_now(self, declared: Declared, items: list[Item], version: str | None) -> int:
        """apply_items() as a batch of its own, in one call: what a watch costs."""
        drop = not declared.keep_managed_fields
        self._refuse_child()
        with self._lock:
            self._usable()
            try:
                self._inside = True
                now = monotonic_ns()
                changes, refused = _hot.apply_now(
                    self._address, declared.id, items, drop, version, now
                )
            except CacheFull as error:
                raise self._explained(f"{declared.name}: {error}") from error
            finally:
                self._inside = False
        log_refused(declared, refused)
        return changes

    def delete(
        self, resource: str, key: str, version: str | None = None, *, unknown: bool = False
    ) -> bool:
        """Removes a key; whether it was there. `unknown`: its last state was not seen."""
        declared = self._resource(resource)
        name, last = key.encode(), _text(version)
        with self._change(resource, whole=False) as handle:
            status = lib.shmc_delete(handle, declared.id, name, len(name), *last, unknown)
            if status == _native.NOT_FOUND:
                return False
            check(status, f"{resource}: delete {key}")
            return True

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

        Other resources (and this one) may be written meanwhile; what is not staged is deleted.
        With a `prefix` this is about keys under it alone ("prod/"), and several prefixes may be
        staged at a time.
        """
        declared = self._resource(resource)
        staged = Staged(self, declared, version, prefix)
        share = prefix.encode()
        with self._turn() as handle:
            self._begin_share(handle, declared, prefix)
        try:
            yield staged
            with self._change(resource, whole=False) as handle:
                last = _text(staged.version)
                status = lib.shmc_share_finish(handle, declared.id, share, len(share), *last)
                check(status, f"{resource}: replace")
                if staged.marks:
                    marks = _text(staged.marks)
                    check(lib.shmc_set_source(handle, declared.id, *marks), resource)
        except BaseException:
            if self._alive[0] and not self.closed:
                with self._turn() as handle:
                    lib.shmc_share_cancel(handle, declared.id, share, len(share))
            raise
        finally:
            declared.shares.discard(prefix)

    def _begin_share(self, handle: _native.WriterHandle, declared: Declared, prefix: str) -> None:
        if self._depth:
            raise ShmCacheError(f"{declared.name}: a replacement cannot begin inside a batch")
        if any(prefix.startswith(each) or each.startswith(prefix) for each in declared.shares):
            raise BusyError(f"{declared.name}: another replacement of {prefix!r} is being staged")
        begin = lib.shmc_share_begin if prefix else lib.shmc_replace_begin
        check(begin(handle, declared.id), f"{declared.name}: replace")
        declared.shares.add(prefix)

    def _emit(self, declared: Declared, key: str, obj: Any) -> tuple[tuple[str, ...], ...]:
        self._inside = True
        try:
            return declared.functions.emit(key, obj)
        finally:
            self._inside = False

    # ---- resources and indices -----------------------------------------------------------------

    def add_resource(self, resource: Resource | str) -> None:
        """Declares a resource and its indices; readers see it, empty, from the next generation."""
        resource = _resource(resource)
        name, number = resource.name.encode(), ffi.new("uint32_t *")
        with self._change(resource.name, whole=True) as handle:
            if resource.name in self._declared:
                raise ValueError(f"cache {self.name!r}: {resource.name} is declared already")
            status = lib.shmc_declare_resource(handle, name, len(name), number)
            check(status, f"declaring {resource.name}")
            declared = self._enlist(resource, int(number[0]))
            for index, spec in resource.indices.items():
                self._declare_index(handle, declared, index, resolve(index, spec) or spec)
            if settings := settings_of(resource):
                self._describe(handle, declared, settings)

    def _enlist(self, resource: Resource, number: int) -> Declared:
        """Notes a resource that the open batch declares, or found."""
        declared = self._declared[resource.name] = Declared(resource, number)
        self._undo.append(lambda: self._declared.pop(declared.name))
        return declared

    def describe(self, resource: str, **more: Any) -> None:
        """Stores what else is to be known of a resource beside its settings: JSON, for readers."""
        declared = self._resource(resource)
        settings = declared.settings | more
        if settings != declared.settings:
            with self._change(resource, whole=True) as handle:
                self._describe(handle, declared, settings)

    def _describe(
        self, handle: _native.WriterHandle, declared: Declared, settings: dict[str, Any]
    ) -> None:
        text = json.dumps(settings, sort_keys=True).encode()
        check(lib.shmc_set_settings(handle, declared.id, text, len(text)), declared.name)
        before, declared.settings = declared.settings, settings
        self._undo.append(lambda: setattr(declared, "settings", before))

    def add_index(self, resource: str, index: str, spec: IndexSpec) -> None:
        """Declares one more index and fills it from the objects that are there, as one generation.

        `spec`: a path, or a function ("module:function" too), which is then called for each object;
        a function cannot come inside a batch, whose objects nobody can read yet.
        """
        check_label("an index's name", index)
        check_index_spec(index, spec)
        declared = self._resource(resource)
        emit = resolve(index, spec)
        with self._turn():
            if emit is not None and self._depth:
                raise ShmCacheError(f"{resource}: an index by a function cannot come in a batch")
        with self._change(resource, whole=True) as handle:
            self._declare_index(handle, declared, index, emit or spec)
            if emit is not None:
                self._refill(declared)

    def _refill(self, declared: Declared) -> None:
        """The values of all index functions, for each object that is there, in the open batch."""
        assert self._segments is not None
        for key, obj in published(self._segments, declared.id):
            _hot.refill(self._address, declared.id, key, self._emit(declared, key, obj))

    def _declare_index(
        self,
        handle: _native.WriterHandle,
        declared: Declared,
        index: str,
        spec: str | Callable[[Any], Any],
    ) -> None:
        name, path = index.encode(), _text(spec if isinstance(spec, str) else None)
        found = ffi.new("uint32_t *")
        status = lib.shmc_declare_index(handle, declared.id, name, len(name), *path, found)
        if status == _native.INVALID:
            raise ValueError(
                f"{declared.name}: index {index} cannot be declared: the name is taken, or the "
                f"path {spec!r} is none"
            )
        check(status, f"{declared.name}: declaring index {index}")
        if not isinstance(spec, str):
            if (mark := identity_of(spec)) is not None:
                text = mark.encode()
                status = lib.shmc_set_function(handle, declared.id, found[0], text, len(text))
                check(status, f"{declared.name}: declaring index {index}")
            declared.functions.add(index, spec)
            self._undo.append(declared.functions.drop_last)

    def objects(self, resource: str) -> Iterator[tuple[str, Any]]:
        """(key, View) of each object as it was published last; nothing may be written meanwhile."""
        assert self._segments is not None
        with self._turn():
            yield from published(self._segments, self._resource(resource).id)

    def _resource(self, resource: str) -> Declared:
        try:
            return self._declared[resource]
        except KeyError:
            known = ", ".join(self._declared) or "none"
            raise KeyError(f"cache {self.name!r} has {known}, not {resource!r}") from None

    # ---- duties --------------------------------------------------------------------------------

    def set_version(self, resource: str, version: str) -> None:
        """Publishes the resource's resourceVersion alone, which wakes nobody."""
        declared = self._resource(resource)
        with self._change(resource, whole=False) as handle:
            check(lib.shmc_set_version(handle, declared.id, *_text(version)), resource)

    def set_marks(self, resource: str, marks: str) -> None:
        """Notes how far the parts of its source are, for the next writer; wakes nobody."""
        declared = self._resource(resource)
        with self._change(resource, whole=False) as handle:
            check(lib.shmc_set_source(handle, declared.id, *_text(marks)), resource)

    def refused(self, resource: str) -> int:
        """How many items of the resource could not be stored so far."""
        return self._resource(resource).refused

    def stats(self) -> dict[str, int]:
        """What shmc_stats says, how often index functions failed, and items that were refused."""
        with self._turn():
            failures = sum(declared.functions.failures for declared in self._declared.values())
            refused = sum(declared.refused for declared in self._declared.values())
            return {**self._stats(), "index_failures": failures, "items_refused": refused}

    def check(self) -> None:
        """Verifies every invariant by a walk over the whole cache; CorruptSegment names one."""
        what = ffi.new("char[256]")
        with self._turn() as handle:
            if self._depth:
                raise ShmCacheError(f"cache {self.name!r}: check() inside a batch")
            status = lib.shmc_check(handle, what, 256)
            if status:
                raise CorruptSegment(f"cache {self.name!r}: {ffi.string(what).decode()}")

    def reclaim(self) -> None:
        """Gives back what no pin needs any more, now instead of at the next turn."""
        with self._turn() as handle:
            check(lib.shmc_reclaim(handle), f"cache {self.name!r}: reclaim")

    def drop_window(self) -> None:
        """Shortens the ring's window to nothing: consumers behind it are lapped."""
        with self._turn() as handle:
            check(lib.shmc_drop_window(handle), f"cache {self.name!r}: drop_window")

    def _tend(self) -> bool:
        """One turn of the regular duties; False when there will be no more."""
        with self._lock:
            if self._handle is None:
                return False
            status = lib.shmc_tend(self._handle, monotonic_ns())
            going_on = status != _native.OK or (
                lib.shmc_in_batch(self._handle) or self._names.look(self)
            )
        if status != self._tended:
            self._tended = status
            if status:
                logger.error("%s", _native.failure(status, f"cache {self.name!r}: tend"))
        return bool(going_on) and status not in (_native.FENCED, _native.CORRUPT)

    def close(self) -> None:
        """Ends the cache: its names go; who is attached keeps its last state. Idempotent.

        In a forked child it only lets go, the parent's cache stays as it is.
        """
        self._end(keep=False)

    def leave(self) -> None:
        """Ends this writer and leaves the cache, with all that is in it, to the next one.

        The memory stays until somebody removes it (Place.remove()). Idempotent, as close().
        """
        self._end(keep=True)

    def _end(self, *, keep: bool) -> None:
        if not self._alive[0]:
            self._handle = None
            return
        with self._lock:
            if self._lock_fd < 0:
                return
            if self._depth or self._inside:
                raise ShmCacheError(f"cache {self.name!r}: close() inside a batch")
            self._stop.set()
            if self._handle is not None:
                if keep:
                    lib.shmc_writer_leave(self._handle)
                _hot.forget(self._address)
                lib.shmc_writer_destroy(self._handle)
                self._handle = None
            try:
                if self._segments is not None:
                    self._give_back(self._segments, keep=keep)
                else:
                    self.place.discard_lock(self._lock_fd)
            finally:
                lib.shmc_keep_in_child(self._lock_fd)
                os.close(self._lock_fd)
                self._lock_fd = -1

    def _give_back(self, segments: Fresh | Inherited, *, keep: bool) -> None:
        """The names go, if they are to, and are ours.

        They are another writer's if it came when somebody had removed our lock's file.
        """
        try:
            if not self._published or not self.place.is_ours(self._lock_fd, segments.current):
                self.place.discard(segments.current, self._lock_fd)
            elif not keep:
                self.place.unlink()
        finally:
            segments.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._handle is not None and self._alive[0]:
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2, source=self)
            self.close()


def _resource(resource: Resource | str) -> Resource:
    return Resource(resource) if isinstance(resource, str) else resource


def _text(text: str | None) -> tuple[Any, int]:
    """Bytes and their length, as the core takes them; NULL and 0 for None."""
    if text is None:
        return NULL, 0
    encoded = text.encode()
    return encoded, len(encoded)


def _tend(writer: weakref.ref[Writer], stop: threading.Event) -> None:
    """The thread: heartbeat, seats of the dead, reclaiming; ends with the writer.

    Not with the memory of its process: nobody else would do its duties when there is some again.
    """
    while True:
        try:
            if stop.wait(TEND_SECONDS):
                return
            alive = writer()
            if alive is None or not alive._tend():  # noqa: SLF001 - half of the Writer
                return
            del alive
        except MemoryError:
            sleep(TEND_SECONDS)
