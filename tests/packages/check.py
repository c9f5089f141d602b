"""Builds the sdist and a manylinux wheel from it, and uses them as who has no compiler does.

    python tests/packages/check.py [DIRECTORY]       (make packages); the wheel stays in DIRECTORY

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


def is_reproducible(sdist: Path, wheel: Path, place: Path) -> bool:
    """Whether the same sources in another place give the same bytes."""
    with tarfile.open(sdist) as archive:
        archive.extractall(place / "sources", filter="data")
    [sources] = (place / "sources").iterdir()
    moved = sources.rename(place / "another-and-longer-name")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", place / "again", moved)
    [again] = (place / "again").glob("*.whl")
    first, second = (hashlib.sha256(file.read_bytes()).digest() for file in (wheel, again))
    return first == second


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


def main(place: Path) -> None:
    # of the last commit, or of the newest file in an sdist
    log = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    of_commit = subprocess.run(log, capture_output=True, text=True, check=False).stdout.strip()
    newest = int(max(file.stat().st_mtime for file in (ROOT / "shmcache").rglob("*.py")))
    os.environ.setdefault("SOURCE_DATE_EPOCH", of_commit or str(newest))
    with tempfile.TemporaryDirectory(prefix="packages-") as scratch:
        elsewhere = Path(scratch)
        sdist, wheel = built(elsewhere / "dist")
        say(f"{sdist.name}: {check_sdist(sdist)} files")
        if not is_reproducible(sdist, wheel, elsewhere):
            raise SystemExit("two builds of the same sources differ: compare them with diffoscope")
        say("reproducible: two builds in different places have one hash")
        wheel = tagged(wheel, elsewhere / "dist")
        if found := faults(wheel):
            raise SystemExit("\n".join(found))
        say("hardened: its libraries are stripped, bound at once and guarded")
        say(f"{wheel.name}: {wheel.stat().st_size >> 10} KiB")

        check_contents(wheel)
        say("complete: man pages, commands and a bill of materials")

        python, environment = fresh(elsewhere / "venv")
        run(python, "-m", "pip", "install", "-q", "--only-binary", ":all:", wheel, env=environment)
        used = run(python, "-c", USE, cwd=elsewhere, env=environment)
        say(f"installed and used: {used.strip().removeprefix(scratch)}")

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


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist"))
