"""Builds `shmcache._core`, the cffi binding of the control plane (out-of-line, API mode).

The declarations are cut from csrc/shmcache.h between its two cffi markers: the header is their only
home. Sources and flags are shared with setup.py, so that `_core` and `_hot` are the same core.
"""

import glob
import os
import sysconfig

from cffi import FFI

_ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)

_HARDENED = [  # also for the linker: with -flto it is the one that makes code
    "-fstack-protector-strong",
    f"-ffile-prefix-map={os.path.realpath(_ROOT)}=.",  # no paths of the builder
]
if sysconfig.get_platform().endswith("x86_64"):  # of the target, which may be another machine
    # shadow stacks; costs no instruction
    _HARDENED += ["-fcf-protection=return", "-Wl,-z,shstk"]
if "-g" not in os.environ.get("CFLAGS", "").split():
    _HARDENED.append("-g0")  # that of some Pythons adds debug information, with their own paths
COMPILE_ARGS = [
    "-std=c11",
    "-O3",
    "-flto=auto",
    "-D_GNU_SOURCE",
    "-fvisibility=hidden",
    "-fno-plt",  # calls of the interpreter go through one table, which is read-only (-z now)
    "-U_FORTIFY_SOURCE",
    "-D_FORTIFY_SOURCE=2",
    "-UNDEBUG",  # Python compiles with -DNDEBUG; the core's asserts are cheap and stay on
    *_HARDENED,
]
LINK_ARGS = [
    "-flto=auto",  # the work per field goes through several small files
    "-Wl,-z,relro,-z,now",
    *_HARDENED,
]


def _sources(folder: str, pattern: str) -> list[str]:
    """Paths relative to the project, in a stable order."""
    return sorted(
        os.path.relpath(path, _ROOT)
        for path in glob.glob(os.path.join(_ROOT, folder, "**", pattern), recursive=True)
    )


def hot_sources() -> list[str]:
    """The sources of the CPython extension alone."""
    return _sources("csrc/python", "*.c")


def core_sources() -> list[str]:
    """The core: the C files that include no Python."""
    hot = hot_sources()
    return [path for path in _sources("csrc", "*.c") if path not in hot]


HEADERS = _sources("csrc", "*.h")


def declarations() -> str:
    """The part of the public header that cffi parses."""
    with open(os.path.join(_ROOT, "csrc", "shmcache.h"), encoding="utf-8") as header:
        text = header.read()
    _, begin, rest = text.partition("/* cffi: begin */")
    body, end, _ = rest.partition("/* cffi: end */")
    if not begin or not end:
        raise RuntimeError("csrc/shmcache.h: the cffi markers are missing")
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
