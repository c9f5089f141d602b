"""Invariant tested: the public names are what __all__ says, sorted, and cost a reader little."""

from __future__ import annotations

import subprocess
import sys

import pytest

import shmcache
from shmcache import _hot, errors

HEAVY = (
    "asyncio",
    "dataclasses",
    "inspect",
    "logging",
    "orjson",
    "posix_ipc",
    "threading",
    "typing",
)


def test_all_is_sorted_and_there() -> None:
    assert sorted(shmcache.__all__) == shmcache.__all__
    for name in shmcache.__all__:
        assert getattr(shmcache, name) is not None
    assert set(shmcache.__all__) <= set(dir(shmcache))


def test_every_exception_is_public() -> None:
    assert set(errors.__all__) <= set(shmcache.__all__)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        shmcache.nothing  # noqa: B018


def test_a_reader_imports_nothing_heavy() -> None:
    code = "import sys; old = set(sys.modules); import shmcache; print(*set(sys.modules) - old)"

    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert set() == set(HEAVY) & set(done.stdout.split())


def test_the_extension_trusts_no_byte() -> None:
    assert _hot.defended is True
