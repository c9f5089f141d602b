"""A resource whose objects are models: look-ups, lists, indices, handlers, events."""

from __future__ import annotations

from collections.abc import Mapping

from shmcache import _hot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from typing import Any, Protocol

    Found = list[Any]
    Items = list[tuple[str, Any]]
    IndexItems = list[tuple[str, str, Any]]

    from shmcache.handlers.aio import Event
    from shmcache.reader.resources import CachedResource

    class Wrapping(Protocol):
        """A maker of models."""

        name: str

        def wrap(self, view: Any) -> Any:
            """The model of a view or Tombstone."""


def wrapping(of: Any = None, version: str | None = None, validate: str = "lazily") -> Wrapping:
    """The maker of models: of a library by its name (None: kubernetes), or of a user's class."""
    if of is None or isinstance(of, str):
        from shmcache.models.dialect import dialect_of
        from shmcache.models.tables import check_library

        library, _, release = (of or "kubernetes").partition("==")
        check_library(library)
        return dialect_of(library, version or release or None)
    from shmcache.models import userclass

    if not userclass.is_declared(of):
        userclass.declared(of)  # TypeError with a cure
    if validate not in {userclass.LAZILY, userclass.AT_ONCE}:
        raise ValueError(f"validate={validate!r}: 'lazily' or 'at once'")
    return userclass.AtOnce(of) if validate == userclass.AT_ONCE else userclass.ClassDialect(of)


class ModelResource(Mapping[str, "Any"]):
    """A CachedResource whose objects are models. Everything that gives no objects is the same."""

    __slots__ = ("_makes", "_of")

    def __init__(self, of: CachedResource, makes: Wrapping) -> None:
        self._of = of
        self._makes = makes

    @property
    def views(self) -> CachedResource:
        """The resource that gives views."""
        return self._of

    def __getattr__(self, name: str) -> Any:
        if name in self.__slots__:  # of a copy that is not made yet
            raise AttributeError(name)
        return getattr(self._of, name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(type(self)), *dir(self._of)})

    def __repr__(self) -> str:
        return f"<shmcache.ModelResource {self._of!r} as {self._makes.name}>"

    # ---- the mapping ---------------------------------------------------------------------------

    def __getitem__(self, key: str) -> Any:
        return self._makes.wrap(self._of[key])

    def get(self, key: str, default: Any = None, **where: Any) -> Any:
        """The same of the views' resource: `get`."""
        found = self._of.get(key, None, **where)
        return default if found is None else self._makes.wrap(found)

    def __contains__(self, key: object) -> bool:
        return key in self._of  # type: ignore[operator]  # TypeError with a cure

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def keys(self) -> Any:
        """The keys of one state, in order."""
        return self._of.keys()

    def values(self) -> Any:
        """The models of one state, in the order of their keys."""
        return map(self._makes.wrap, self._of.values())

    def items(self) -> Any:
        """(key, model) of one state, in order."""
        wrap = self._makes.wrap
        return ((key, wrap(obj)) for key, obj in self._of.items())

    # ---- lists ---------------------------------------------------------------------------------

    def list(self, *args: Any, **kwargs: Any) -> Found:
        """The same of the views' resource: `list`."""
        return self._many(self._of.list(*args, **kwargs))

    def by_index(self, *args: Any, **kwargs: Any) -> Found:
        """The same of the views' resource: `by_index`."""
        return self._many(self._of.by_index(*args, **kwargs))

    def owned_by(self, uid: str) -> Found:
        """The same of the views' resource: `owned_by`."""
        return self._many(self._of.owned_by(uid))

    def owner_of(self, obj: Any) -> Any:
        """The owner of a model or of a view, as a model."""
        view = obj.to_view() if type(obj) is _hot.Model else obj
        found = self._of.owner_of(view)
        return None if found is None else self._makes.wrap(found)

    def range(self, *args: Any, **kwargs: Any) -> Items:
        """The same of the views' resource: `range`."""
        wrap = self._makes.wrap
        return [(key, wrap(obj)) for key, obj in self._of.range(*args, **kwargs)]

    def scan_index(self, index: str, **bounds: Any) -> IndexItems:
        """The same of the views' resource: `scan_index`."""
        wrap = self._makes.wrap
        found = self._of.scan_index(index, **bounds)
        return [(value, key, wrap(obj)) for value, key, obj in found]

    def _many(self, found: Any) -> Found:
        """A list that fallback() gave instead is left as it is, but for views in it."""
        wrap = self._makes.wrap
        return [wrap(obj) if type(obj) is _hot.View else obj for obj in found]

    # ---- handlers ------------------------------------------------------------------------------

    def add_handler(
        self, on_add: Any = None, on_update: Any = None, on_delete: Any = None, **options: Any
    ) -> Any:
        """The same of the views' resource, with functions that are given models."""
        return self._of.add_handler(
            self._given(on_add, 1), self._given(on_update, 2), self._given(on_delete, 1), **options
        )

    def _given(self, function: Any, objects: int) -> Callable[..., Any] | None:
        """The function, called with models for its first arguments; a coroutine stays one."""
        if not callable(function):
            return function  # type: ignore[no-any-return]  # None, or refused by add_handler()
        from shmcache.callables import check_callable, is_coroutine_function

        check_callable(function, "a handler")
        wrap = self._makes.wrap
        if is_coroutine_function(function):

            async def awaited(*args: Any) -> Any:
                return await function(*map(wrap, args[:objects]), *args[objects:])

            return awaited
        return lambda *args: function(*map(wrap, args[:objects]), *args[objects:])

    def events(self, **options: Any) -> AsyncIterator[Event]:
        """The same of the views' resource, with models."""
        return ModelEvents(self._of.events(**options), self._makes)


class ModelEvents:
    """The events of an iteration, with models in the which of views."""

    def __init__(self, events: Any, makes: Wrapping) -> None:
        self._events = events
        self._makes = makes

    def __aiter__(self) -> ModelEvents:
        return self

    async def __anext__(self) -> Event:
        event: Event = await self._events.__anext__()
        for which in ("old", "new"):
            obj = getattr(event, which)
            if obj is not None:
                setattr(event, which, self._makes.wrap(obj))
        return event

    async def aclose(self) -> None:
        """Ends the iteration. May be repeated."""
        await self._events.aclose()
