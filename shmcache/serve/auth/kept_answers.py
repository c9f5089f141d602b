"""Answers of the API server that are kept for a time: so many, and so many bytes.

RECALL1  the key of an answer is the digest of its question: a long name in a request costs no
memory here.
RECALL2  the oldest answers go where there are too many, or where they are too large together.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

ENTRY = 400
"""Bytes of an answer besides its text."""


class KeptAnswers:
    """Of questions, by their keys."""

    def __init__(self, most: int, most_bytes: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._clock = clock
        self._answers: OrderedDict[bytes, tuple[float, int, Any]] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: bytes) -> tuple[Any] | None:
        """The answer, in a tuple since it may be None; None where it is not here any more."""
        found = self._answers.get(key)
        return (found[2],) if found is not None and found[0] > self._clock() else None

    def keep(self, key: bytes, answer: Any, seconds: float) -> None:
        """For so long, at most."""
        self.drop(key)
        size = ENTRY + (0 if answer is None or isinstance(answer, bool) else 2 * len(repr(answer)))
        self._answers[key] = (self._clock() + seconds, size, answer)
        self.bytes += size
        while len(self._answers) > self._most or self.bytes > self._most_bytes:
            self.bytes -= self._answers.popitem(last=False)[1][1]

    def drop(self, key: bytes) -> None:
        """Idempotent."""
        found = self._answers.pop(key, None)
        if found is not None:
            self.bytes -= found[1]


def key_of(*question: object) -> bytes:
    """The digest of a question. Its parts are texts, or tuples of them."""
    text = repr(question).encode("utf-8", "backslashreplace")
    return hashlib.blake2b(text, digest_size=20).digest()
