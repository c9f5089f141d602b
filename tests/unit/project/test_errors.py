"""Invariant tested: every exception names the remedy, crosses processes, and has the one root."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from shmcache import errors
from shmcache.engine.budget import OverBudget

ROOT = Path(__file__).resolve().parents[3]

CLASSES = [getattr(errors, name) for name in errors.__all__]


def make(cls: type[Exception]) -> Exception:
    return cls(7) if cls is errors.Lapped else cls("the cause")


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_exception_survives_pickling(cls: type[Exception]) -> None:
    error = make(cls)

    again = pickle.loads(pickle.dumps(error))  # noqa: S301

    assert (type(error), error.args, str(error)) == (type(again), again.args, str(again))
    assert vars(error) == vars(again)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_exception_has_the_root_and_says_what_to_do(cls: type[Exception]) -> None:
    assert issubclass(cls, errors.ShmCacheError)
    assert cls.__doc__ is not None
    assert cls.__doc__.count(".") >= 2


@pytest.mark.parametrize("cls", [*CLASSES, OverBudget], ids=lambda cls: cls.__name__)
def test_the_note_of_an_exception_leads_to_an_entry(cls: type[Exception]) -> None:
    page, _, anchor = make(cls).__notes__[0].rpartition(" ")[2].partition("#")
    headings = re.findall(r"^### (\w+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in [heading.lower() for heading in headings]


def test_unsupported_values_and_limits_are_also_the_builtin_errors() -> None:
    assert issubclass(errors.UnsupportedValue, TypeError)
    assert issubclass(errors.LimitExceeded, ValueError)


def test_lapped_knows_where_to_go_on() -> None:
    assert errors.Lapped(41).position == 41
    assert "41" in str(errors.Lapped(41))
