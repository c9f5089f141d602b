"""The rest of an object whose last state is gone: its identity, in the object's own shape."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self


class Tombstone(dict):  # type: ignore[type-arg]  # of str and Any; typing is not imported here
    """{"metadata": {"name", "namespace", "uid", "resourceVersion"}}, as far as these are known.

    Handlers are given one instead of an object that cannot be had any more. Its
    metadata can be read as that of the object; all else is missing, and `get()` returns None.
    """

    __slots__ = ("key", "uid", "version")

    key: str
    uid: str | None
    version: str | None
    """The last resourceVersion that is known; None where a later one is all that is known."""

    def __init__(self, key: str, uid: str | None, version: str | None) -> None:
        self.key = key
        self.uid = uid
        self.version = version
        namespace, _, name = key.rpartition("/")
        metadata = {"name": name}
        if namespace:
            metadata["namespace"] = namespace
        if uid is not None:
            metadata["uid"] = uid
        if version is not None:
            metadata["resourceVersion"] = version
        super().__init__(metadata=metadata)

    @property
    def name(self) -> str:
        """The part of the key behind the slash."""
        return self.key.rpartition("/")[2]

    @property
    def namespace(self) -> str | None:
        """The part of the key before the slash; None without a slash."""
        return self.key.rpartition("/")[0] or None

    def to_dict(self) -> dict[str, Any]:
        """The same as a plain dict."""
        return {"metadata": dict(self["metadata"])}

    def __reduce__(self) -> tuple[type[Self], tuple[str, str | None, str | None]]:
        return type(self), (self.key, self.uid, self.version)

    def __repr__(self) -> str:
        return f"<shmcache.Tombstone {self.key!r} uid={self.uid!r} version={self.version!r}>"
