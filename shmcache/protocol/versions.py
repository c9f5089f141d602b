"""resourceVersions: decimal strings, compared without ever being numbers of ours."""

from __future__ import annotations

LONGEST = 77
"""Digits, less than 256 bits: a longer text is not a version, and is never made a number."""


def is_version(text: str) -> bool:
    """Whether it is a resourceVersion that can be compared: digits, no leading zero, not empty."""
    return len(text) <= LONGEST and text.isascii() and text.isdigit() and text[0] != "0"


def compare(left: str, right: str) -> int:
    """-1, 0 or 1; ValueError for anything but a version ("0" and "" mean other things)."""
    for text in (left, right):
        if not is_version(text):
            raise ValueError(
                f"{text!r} is not a resourceVersion: decimal digits without leading zero"
            )
    if len(left) != len(right):
        return -1 if len(left) < len(right) else 1
    return (left > right) - (left < right)


def number_of(version: str | None) -> int:
    """A resourceVersion as the number that the API server makes of it; -1 if it is not one."""
    if not version or len(version) > LONGEST:
        return -1
    return int(version) if version.isascii() and version.isdigit() else -1
