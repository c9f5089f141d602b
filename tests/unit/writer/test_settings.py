"""Invariant tested: settings are either valid or refused with a text that names them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from shmcache import _core, states
from shmcache.settings import GIB, MIB, Resource, WriterSettings, format_size, parse_size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (4096, 4096),
        ("0", 0),
        ("4GiB", 4 * GIB),
        ("64 MiB", 64 * MIB),
        ("1.5gib", 3 * GIB // 2),
        ("500M", 500_000_000),
        ("2kB", 2000),
    ],
)
def test_a_size_is_a_number_of_bytes_or_a_text(text: int | str, expected: int) -> None:
    assert expected == parse_size(text)


@pytest.mark.parametrize("text", ["", "GiB", "4 XiB", "-1", -1, "4GiB!", "1e9"])
def test_an_invalid_size_is_refused(text: int | str) -> None:
    with pytest.raises(ValueError, match="arena_max"):
        parse_size(text, "arena_max")


@pytest.mark.parametrize("text", [None, True, 1.5])
def test_a_size_of_another_type_is_refused(text: Any) -> None:
    with pytest.raises(TypeError, match="'4GiB'"):
        parse_size(text)


def test_sizes_are_shown_in_short_form() -> None:
    assert ["0 B", "1.5 KiB", "4 GiB"] == [format_size(n) for n in (0, 1536, 4 * GIB)]


def test_the_defaults_are_those_of_the_documentation() -> None:
    settings = WriterSettings()

    assert (4 * GIB, 65_536, 128, 0o600) == (
        settings.arena_max,
        settings.ring_slots,
        settings.seats,
        settings.mode,
    )
    assert 1 << 24 == WriterSettings(ring_slots=1 << 24).ring_slots
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.seats = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ring_slots", 1000),
        ("ring_slots", 4),
        ("ring_slots", 1 << 25),
        ("arena_max", "1KiB"),
        ("arena_max", "33GiB"),
        ("seats", 0),
        ("seats", 1025),
        ("mode", 0o666),
        ("mode", 0o400),
        ("mode", 0o700),
    ],
)
def test_an_invalid_setting_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        WriterSettings(**{name: value})


def test_names_and_index_specs_are_checked() -> None:
    assert {"node": "spec.nodeName"} == Resource("pods", {"node": "spec.nodeName"}).indices
    with pytest.raises(ValueError, match="resource"):
        Resource("")
    with pytest.raises(ValueError, match="printable"):
        Resource("pods", {"a\nb": "spec"})
    with pytest.raises(ValueError, match="'node': the path is empty"):
        Resource("pods", {"node": " "})
    with pytest.raises(TypeError, match="'node'"):
        Resource("pods", {"node": 5})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="at most 32"):
        Resource("pods", {f"i{n}": "spec" for n in range(33)})


def test_the_states_are_those_of_the_core() -> None:
    for name in ("ABSENT", "LISTING", "SYNCED", "RETRYING", "STALED", "EXCEEDED", "GONE"):
        assert getattr(_core.lib, f"SHMC_{name}") == getattr(states, name)
    assert states.GONE + 1 == len(states.NAMES)
