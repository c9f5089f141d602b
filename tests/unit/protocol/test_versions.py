"""resourceVersions of servers that send any text."""

from __future__ import annotations

import pytest

from shmcache.protocol import relays
from shmcache.protocol.versions import LONGEST, is_version, number_of


def test_a_text_of_too_many_digits_is_not_a_version() -> None:
    assert is_version("9" * LONGEST)
    assert number_of("9" * LONGEST) < 1 << 256
    for digits in (LONGEST + 1, 5000):  # Python refuses to convert the longer one
        assert not is_version("9" * digits)
        assert number_of("9" * digits) == -1


@pytest.mark.parametrize("text", ["5\r\nX-Other: 1", "5 6", "", "ü", "9" * 5000])
def test_only_a_version_is_repeated_in_a_header(text: str) -> None:
    """It would split the answer for all clients of a relay."""
    assert relays.lines(lag=None, version=text) == b""
    assert relays.lines(lag=None, version="5") == b"X-Shmcache-Version: 5\r\n"
