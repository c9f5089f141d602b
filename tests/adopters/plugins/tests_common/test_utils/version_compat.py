"""The versions of Airflow that its tests ask about: whether the installed one is at least that."""

import re
from importlib.metadata import version

_HERE = tuple(int(number) for number in version("apache-airflow-core").split(".")[:2])


def __getattr__(name: str) -> bool:
    asked = re.fullmatch(r"AIRFLOW_V_(\d+)_(\d+)(?:_\d+)?_PLUS", name)
    if asked is None:
        raise AttributeError(name)
    return (int(asked[1]), int(asked[2])) <= _HERE
