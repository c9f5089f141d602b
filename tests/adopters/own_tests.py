"""The tests of programs themselves, unmodified, from their source distributions on PyPI.

A program's tests run twice in processes of their own: as they are, and with the adapter. A test
that passes without the adapter has to pass with it. Others need a cluster, a database, or packages
of certain versions; the output has their number.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from collections import Counter
from importlib import metadata
from pathlib import Path

import pytest

PLACE = Path(sys.prefix) / "sources"
HERE = Path(__file__).parent
SECONDS = 1200


def sources(package: str) -> Path:
    """The unpacked source distribution of the installed version, or a skip that says why not."""
    version = metadata.version(package)
    root = PLACE / f"{package.replace('-', '_')}-{version}"
    if not root.exists():
        download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary"]
        asked = [*download, ":all:", "-d", str(PLACE), f"{package}=={version}"]
        if subprocess.run(asked, capture_output=True, check=False).returncode:
            pytest.skip(f"PyPI gives no source of {package} {version}: its tests are NOT RUN")
        with tarfile.open(PLACE / f"{root.name}.tar.gz") as archive:
            archive.extractall(PLACE, filter="data")
    return root


def outcomes(root: Path, tests: list[str], *options: str, adopted: str = "") -> dict[str, str]:
    """passed, failed or skipped, by the name of each test. `adopted`: a plugin that adopts."""
    report = PLACE / f"report-{adopted or 'alone'}-{os.getpid()}.xml"
    settings = PLACE / "pytest.ini"
    settings.write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider"]
    command += ["-c", str(settings), f"--rootdir={root}", f"--junitxml={report}", *options]
    if adopted:
        command += ["-p", adopted]
    paths = [str(HERE), str(HERE / "plugins"), str(HERE.parents[1])]
    run = subprocess.run(
        [*command, *tests],
        cwd=root,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert report.exists(), run.stdout + run.stderr
    return {
        f"{case.get('classname')}::{case.get('name')}": _outcome(case)
        for case in ET.parse(report).iter("testcase")  # noqa: S314 - ours
    }


def _outcome(case: ET.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


def check(package: str, tests: list[str], adopted: str, *options: str, least: int) -> None:
    """Each test that passes alone passes with the adapter; at least so many do."""
    root = sources(package)
    alone = outcomes(root, tests, *options)
    ours = outcomes(root, tests, *options, adopted=adopted)
    passed = [name for name, outcome in alone.items() if outcome == "passed"]
    worse = [name for name in passed if ours.get(name) != "passed"]
    said = ", ".join(f"{count} {outcome}" for outcome, count in Counter(alone.values()).items())
    sys.stderr.write(
        f"\n{package} {metadata.version(package)}, its own tests: {said} without the adapter; "
        f"{len(passed) - len(worse)} of the {len(passed)} pass with it\n"
    )
    assert worse == []
    assert len(passed) >= least
