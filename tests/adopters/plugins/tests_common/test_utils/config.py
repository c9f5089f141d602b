"""Settings of Airflow for the time of a test."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def conf_vars(overrides: dict[tuple[str, str], str | None]) -> Iterator[None]:
    """These options, by section and name; None: the default. By the environment."""
    names = {
        f"AIRFLOW__{section.upper()}__{key.upper()}": value
        for (section, key), value in overrides.items()
    }
    before = {name: os.environ.get(name) for name in names}
    _set(names)
    try:
        yield
    finally:
        _set(before)


def _set(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
