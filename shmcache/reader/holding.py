"""The attachment behind a reader: its handle is used and left, and freed by its last user."""

from __future__ import annotations

from shmcache.errors import ClosedError, ForkedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shmcache import _hot


def attachment(reader: _hot.Reader) -> Any:
    """The owner of the reader's handle: use() returns it, and leave() must follow."""
    found: Any = reader.owner
    name = found.name if found is not None else ""
    if reader.forked:
        raise ForkedError(f"cache {name!r} was attached by the parent process: attach again here")
    if found is None or reader.closed:
        raise ClosedError(f"cache {name!r} is closed")
    return found
