"""Has the reflector compare a resource with its server now, and takes its report."""

from __future__ import annotations

import time

from shmcache.errors import UnconfirmedError
from shmcache.protocol.jsontext import decoded
from shmcache.reader import asking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shmcache.reader.cache import Cache

REPORT_BYTES = 1 << 20


def verify(cache: Cache, resource: str, timeout: float) -> list[dict[str, Any]]:
    """A report for each part of a resource: its namespace, what was compared, and what differs.

    UnconfirmedError if there is no report in time.
    """
    question = asking.Question(resource, verify=True)
    deadline = time.monotonic() + asking.check_timeout(timeout)
    try:
        found = decoded(asking.ask(cache, question, deadline, REPORT_BYTES))
        if "error" in found:
            raise UnconfirmedError(f"{resource}: {found['error']}")
        reports: list[dict[str, Any]] = found["feeds"]
        if not all(isinstance(one, dict) for one in reports):
            raise TypeError("not a report")
    except (ValueError, KeyError, TypeError) as error:
        raise UnconfirmedError(f"{resource}: the reflector's report is malformed") from error
    return reports
