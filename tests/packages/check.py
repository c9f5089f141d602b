"""Builds the sdist and a manylinux wheel from it, and uses them as who has no compiler does.

    python tests/packages/check.py [DIRECTORY]             (make packages)
    python tests/packages/check.py DIRECTORY --sdist SDIST (make wheels): the wheel of this CPython

Both stay in DIRECTORY. With an sdist that was checked before, 2, 3 and 6 are done, and 3 without
mypy; dependencies that have no wheel for this CPython yet are compiled.

1. The sdist has every file that tests, docs and benchmarks need.
2. The wheel is built from the sdist. Its tag is what auditwheel finds in its symbols.
3. It is installed where PATH has no compiler: what only reads installs cffi and posix_ipc,
   writes and reads a cache, has its licence, and is typed for mypy's strict mode.
4. With the extra `demo`, `shmcache demo` runs.
5. It has its man pages, its commands, and a valid bill of materials.
6. A second build, in a directory of another name, gives the same wheel byte for byte. Its libraries
   are stripped and hardened, and hold no path of the builder (hardened.py).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

from hardened import faults

ROOT = Path(__file__).resolve().parent.parent.parent
SHIPPED = ("benchmarks", "csrc", "deploy", "docs", "examples", "release", "shmcache", "tests")
LEFT_OUT = {".so", ".pyc", ".o"}
NEWEST_GLIBC = (2, 34)
"""Of RHEL 9, Debian 12, Ubuntu 22.04. A wheel that needs a newer one should say why."""

USE = """
import shmcache

pods = shmcache.Resource("pods", {"node": "spec.nodeName"})
with shmcache.Writer("packages", resources=[pods]) as w:
    w.apply("pods", [{"metadata": {"namespace": "a", "name": "b"}, "spec": {"nodeName": "n"}}])
    with shmcache.attach("packages") as cache:
        assert cache["pods"]["a/b"]["spec"]["nodeName"] == "n"
        (pod,) = cache["pods"].by_index("node", "n")
        assert pod.to_dict()["spec"] == {"nodeName": "n"}
    w.check()
import importlib.metadata, importlib.resources
names = {each.metadata["Name"] for each in importlib.metadata.distributions()}
assert names - {"pip", "setuptools"} == {"shmcache", "cffi", "pycparser", "posix_ipc"}, names
found = {file.name for file in importlib.metadata.files("shmcache")}
assert {"LICENSE", "NOTICE", "py.typed", "_hot.pyi", "_core.pyi"} <= found
print(shmcache.__file__)
"""
TYPED = """
from collections.abc import Iterator
import shmcache
from shmcache.integrations.gunicorn import hooks

def nodes(cache: shmcache.Cache) -> Iterator[str]:
    for key, pod in cache["pods"].items():
        reveal_type(key)
        name: str = pod["spec"]["nodeName"]
        yield name
    reveal_type(cache["pods"].get("a/b"))
    reveal_type(hooks("pods", name="web"))

def wrong(cache: shmcache.Cache) -> int:
    return cache.name
"""
TYPES = (
    'Revealed type is "str"',
    'Revealed type is "shmcache._hot.View | None"',
    'Revealed type is "dict[str, def (*Any, **Any)]"',
    'Incompatible return value type (got "str", expected "int")  [return-value]',
    "Found 1 error in 1 file",
)


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def say(text: str, since: float = time.monotonic()) -> None:
    sys.stdout.write(f"{time.monotonic() - since:5.1f} s  {text}\n")
    sys.stdout.flush()


def built(place: Path) -> tuple[Path, Path]:
    """Both in an empty directory, the wheel from what the sdist has."""
    run(sys.executable, "-m", "build", "--outdir", place, ROOT)
    (sdist,), (wheel,) = place.glob("*.tar.gz"), place.glob("*.whl")
    return sdist, wheel


def wheel_of(sdist: Path, sources: Path, place: Path) -> Path:
    """The wheel from what an sdist has, unpacked as `sources`."""
    with tarfile.open(sdist) as archive:
        archive.extractall(place / "unpacked", filter="data")
    [unpacked] = (place / "unpacked").iterdir()
    unpacked.rename(sources)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", place, sources)
    [wheel] = place.glob("*.whl")
    return wheel


def check_reproducible(sdist: Path, wheel: Path, place: Path) -> None:
    """Ends unless the same sources in another place give the same bytes."""
    again = wheel_of(sdist, place / "another-and-longer-name", place / "again")
    first, second = (hashlib.sha256(file.read_bytes()).digest() for file in (wheel, again))
    if first != second:
        raise SystemExit("two builds of the same sources differ: compare them with diffoscope")
    say("reproducible: two builds in different places have one hash")


def check_sdist(sdist: Path) -> int:
    """How many files it has; ends where one is missing."""
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        str(file.relative_to(ROOT))
        for top in SHIPPED
        for file in (ROOT / top).rglob("*")
        if file.is_file() and file.suffix not in LEFT_OUT and "__pycache__" not in file.parts
    }
    wanted -= {"shmcache/_core.c"}
    if missing := sorted(wanted - inside):
        raise SystemExit(f"the sdist lacks {', '.join(missing)}")
    return len(inside)


def tagged(wheel: Path, place: Path) -> Path:
    """The wheel with the tag of the oldest glibc that it runs on."""
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": tools}
    repair = ("repair", "--strip", "--wheel-dir", place, wheel)
    run(sys.executable, "-m", "auditwheel", *repair, env=environment)
    (found,) = place.glob("*manylinux*.whl")
    needed = tuple(map(int, found.name.split("manylinux_")[1].split("_")[:2]))
    if needed > NEWEST_GLIBC:
        raise SystemExit(f"{found.name} needs a glibc newer than {NEWEST_GLIBC}")
    wheel.unlink()
    if wrong := faults(found):
        raise SystemExit("\n".join(wrong))
    say("hardened: its libraries are stripped, bound at once and guarded")
    say(f"{found.name}: {found.stat().st_size >> 10} KiB")
    return found


def check_contents(wheel: Path) -> None:
    """Ends where a part is missing that only wheels have, or the bill of materials is invalid."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [bill] = [name for name in names if name.endswith(".dist-info/sboms/shmcache.cdx.json")]
        error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(archive.read(bill).decode())
        [points] = [name for name in names if name.endswith("entry_points.txt")]
        commands = archive.read(points).decode()
    if error is not None:
        raise SystemExit(f"{bill} is not valid CycloneDX: {error}")
    pages = {name.rpartition("/")[2] for name in names if "/share/man/man1/" in name}
    if missing := {file.name for file in (ROOT / "docs" / "man").iterdir()} - pages:
        raise SystemExit(f"the wheel lacks {', '.join(sorted(missing))}")
    if "kubectl-shmcache" not in commands:
        raise SystemExit("the wheel lacks the plugin of kubectl")


def fresh(place: Path) -> tuple[Path, dict[str, str]]:
    """The interpreter of an empty environment, and variables without any compiler."""
    run(sys.executable, "-m", "venv", place)
    environment = {**os.environ, "PATH": str(place / "bin")}
    for name in ("CC", "CXX", "PYTHONPATH"):
        environment.pop(name, None)
    for compiler in ("cc", "gcc", "clang", "c99"):
        if shutil.which(compiler, path=environment["PATH"]):
            raise SystemExit(f"{compiler} is in PATH")
    return place / "bin" / "python", environment


def use(python: Path, environment: dict[str, str], place: Path) -> None:
    """A cache is written and read with what is installed."""
    used = run(python, "-c", USE, cwd=place, env=environment)
    say(f"installed and used: {used.strip().removeprefix(str(place))}")


def check_wheel(sdist: Path, place: Path) -> None:
    """The wheel of this CPython alone."""
    say(f"CPython {sys.version.split()[0]}")
    with tempfile.TemporaryDirectory(prefix="wheel-") as scratch:
        elsewhere = Path(scratch)
        wheel = wheel_of(sdist, elsewhere / "sources", elsewhere / "dist")
        check_reproducible(sdist, wheel, elsewhere)
        wheel = tagged(wheel, elsewhere / "dist")
        python, environment = fresh(elsewhere / "venv")
        run(python, "-m", "pip", "install", "-q", "--prefer-binary", *dependencies(wheel))
        run(python, "-m", "pip", "install", "-q", "--only-binary", ":all:", wheel, env=environment)
        use(python, environment, elsewhere)
        shutil.copy(wheel, place)


def dependencies(wheel: Path) -> list[str]:
    """Those without extras."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().partition("\n\n")[0].splitlines()
    needed = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    return [each for each in needed if "extra ==" not in each]


def set_epoch() -> None:
    """The time of the last commit, or of the newest file in an sdist, for reproducible builds."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return
    log = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    of_commit = subprocess.run(log, capture_output=True, text=True, check=False).stdout.strip()
    newest = int(max(file.stat().st_mtime for file in (ROOT / "shmcache").rglob("*.py")))
    os.environ["SOURCE_DATE_EPOCH"] = of_commit or str(newest)


def check_packages(place: Path) -> None:
    """The sdist and the wheel of this CPython, and all that both must have."""
    with tempfile.TemporaryDirectory(prefix="packages-") as scratch:
        elsewhere = Path(scratch)
        sdist, wheel = built(elsewhere / "dist")
        say(f"{sdist.name}: {check_sdist(sdist)} files")
        check_reproducible(sdist, wheel, elsewhere)
        wheel = tagged(wheel, elsewhere / "dist")

        check_contents(wheel)
        say("complete: man pages, commands and a bill of materials")

        python, environment = fresh(elsewhere / "venv")
        run(python, "-m", "pip", "install", "-q", "--only-binary", ":all:", wheel, env=environment)
        use(python, environment, elsewhere)

        (elsewhere / "typed.py").write_text(TYPED)
        mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python)]
        seen = subprocess.run(
            [*mypy, "--cache-dir", scratch, "typed.py"],
            cwd=elsewhere, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if missing := [text for text in TYPES if text not in seen.stdout]:
            raise SystemExit(f"mypy does not say {missing}:\n{seen.stdout}{seen.stderr}")
        say("typed: mypy --strict finds the one mistake, and no other")

        run(python, "-m", "pip", "install", "-q", "--only-binary", ":all:", f"{wheel}[demo]",
            env=environment)  # fmt: skip
        script = python.parent / "shmcache"
        shown = run(
            script, "demo", "--seconds", "2", "--pods", "200", cwd=elsewhere, env=environment
        )
        if "nothing was left behind" not in shown:
            raise SystemExit(f"the demo does not end well:\n{shown}")
        say("shmcache demo runs")
        place.mkdir(parents=True, exist_ok=True)
        for file in (sdist, wheel):
            shutil.copy(file, place)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("place", type=Path, nargs="?", default=ROOT / "dist")
    parser.add_argument("--sdist", type=Path)
    options = parser.parse_args()
    set_epoch()
    if options.sdist:
        check_wheel(options.sdist, options.place)
    else:
        check_packages(options.place)


if __name__ == "__main__":
    main()
