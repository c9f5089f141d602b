"""The memory that a request keeps while it waits or its answer goes on, in bytes, estimated.

A head is kept as its text and as the parts that were read from it, selectors as their values. The
numbers are upper bounds that were measured, not sizes to the byte: `make hostile` compares what a
process really takes.

    WEIGHT1  the first FREE bytes of each request are its own: the usual ones cost nothing.
    WEIGHT2  what is beyond counts into `Limits.kept_bytes`, shared as shares.py says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shmcache.reader.selectors import Selector
    from shmcache.serve.http.heads import Fields
    from shmcache.serve.http.requests import HttpRequest

FREE = 2048
_TARGET, _HEADERS = 5, 3
"""How often the text of a target and of headers is kept."""
_TERM, _VALUE = 640, 160
"""Of one term of a selector, compiled, and of each of its values: texts, places in tuples and sets,
and the function that tests an object."""
_SHARD = 8
"""How often the text of a shard selector."""
DIFFERENCE = 200
"""Of an object that an exact version shows as it was."""


def weight_of(request: HttpRequest | None, fields: Fields | None) -> int:
    """Of a request, as far as its head is still here."""
    found = 0 if request is None else _TARGET * len(request.uri) + request.weight
    if fields is not None:
        return found + _HEADERS * fields.size
    return found if request is None else found + _texts(request.headers)


def _texts(headers: Mapping[str, str]) -> int:
    return sum(map(len, headers.values()))


def weight_of_selectors(*selectors: Selector | None, shard: str = "") -> int:
    """Of compiled selectors; `shard`: the text of a third one."""
    found = _SHARD * len(shard)
    for selector in selectors:
        for term in () if selector is None else selector.requirements:
            found += _TERM + 2 * len(term.key)
            found += sum(_VALUE + 2 * len(value) for value in term.values)
    return found
