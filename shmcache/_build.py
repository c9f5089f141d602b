"""Builds `shmcache._core`, the cffi binding of the control plane (out-of-line, API mode).

The declarations are cut from csrc/shmcache.h between its two cffi marks: the header is their only
home. Sources and flags are shared with setup.py, so that `_core` and `_hot` are the same core.
"""

import glob
import os

from cffi import FFI

_ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)

COMPILE_ARGS = [
    "-std=c11",
    "-O3",
    "-flto=auto",
    "-D_GNU_SOURCE",
    "-fvisibility=hidden",
    "-UNDEBUG",  # Python compiles with -DNDEBUG; the core's asserts are cheap and stay on
]
LINK_ARGS = ["-flto=auto"]  # what happens per field goes through several small files


def _sources(pattern: str) -> list[str]:
    """Paths relative to the project, in a stable order."""
    found = glob.glob(os.path.join(_ROOT, "csrc", pattern))
    return sorted("csrc/" + os.path.basename(path) for path in found)


def hot_sources() -> list[str]:
    """What only the CPython extension has."""
    return _sources("py*.c")


def core_sources() -> list[str]:
    """The core: every C file that includes no Python."""
    hot = hot_sources()
    return [path for path in _sources("*.c") if path not in hot]


HEADERS = _sources("*.h")


def declarations() -> str:
    """The part of the public header that cffi parses."""
    with open(os.path.join(_ROOT, "csrc", "shmcache.h"), encoding="utf-8") as header:
        text = header.read()
    _, begin, rest = text.partition("/* cffi: begin */")
    body, end, _ = rest.partition("/* cffi: end */")
    if not begin or not end:
        raise RuntimeError("csrc/shmcache.h: the cffi marks are missing")
    return body


ffibuilder = FFI()
ffibuilder.cdef(declarations())
ffibuilder.set_source(
    "shmcache._core",
    '#include "shmcache.h"\n',
    sources=core_sources(),
    include_dirs=["csrc"],
    depends=HEADERS,
    extra_compile_args=COMPILE_ARGS,
    extra_link_args=LINK_ARGS,
)
