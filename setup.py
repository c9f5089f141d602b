"""The two extension modules; all else is in pyproject.toml and setup.cfg.

Both are compiled from the same core: `_core` binds it for the control plane (cffi), `_hot` is the
CPython extension of the hot path. setuptools ignores cffi_modules in setup.cfg, hence this file.
"""

import glob
import os
import runpy
import shlex
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise SystemExit(
        "shmcache needs a CPython with the GIL, and this is a free-threaded build: "
        "install it for python3.x, not for python3.xt"
    )

# that of some Pythons writes a RUNPATH of its builder into extensions
if CC := sysconfig.get_config_var("CC"):  # not on Windows
    os.environ.setdefault("LDSHARED", shlex.split(CC)[0] + " -shared")
build = runpy.run_path("shmcache/_build.py")
sbom = runpy.run_path("release/sbom.py")


class Wheel(bdist_wheel):  # type: ignore[misc] # setuptools ships no types
    """A wheel with its bill of materials (PEP 770)."""

    def egg2dist(self, egginfo_path: str, distinfo_path: str) -> None:
        """Adds it to the metadata."""
        super().egg2dist(egginfo_path, distinfo_path)
        data = self.distribution.metadata
        folder = Path(distinfo_path) / "sboms"
        folder.mkdir(exist_ok=True)
        needed = list(self.distribution.install_requires)
        text = sbom["text"](data.get_name(), data.get_version(), data.license_expression, needed)
        (folder / sbom["FILE"]).write_text(text)


# elsewhere the package is pure Python: a private cache with the same API (shmcache/portable)
NATIVE = sys.platform == "linux"

setup(
    cmdclass={"bdist_wheel": Wheel},
    data_files=[("share/man/man1", sorted(glob.glob("docs/man/*.1")))],
    cffi_modules=["shmcache/_build.py:ffibuilder"] if NATIVE else [],
    ext_modules=[
        Extension(
            "shmcache._hot",
            sources=build["core_sources"]() + build["hot_sources"](),
            include_dirs=["csrc"],
            depends=build["HEADERS"],
            extra_compile_args=build["COMPILE_ARGS"],
            extra_link_args=build["LINK_ARGS"],
        ),
    ]
    if NATIVE
    else [],
)
