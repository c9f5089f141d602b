"""The two extension modules; all else is in pyproject.toml and setup.cfg.

Both are compiled from the same core: `_core` binds it for the control plane (cffi), `_hot` is the
CPython extension of the hot path. setuptools ignores cffi_modules in setup.cfg, hence this file.
"""

import os
import runpy
import shlex
import sysconfig

from setuptools import Extension, setup

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise SystemExit(
        "shmcache needs a CPython with the GIL, and this is a free-threaded build: "
        "install it for python3.x, not for python3.xt"
    )

# that of some Pythons writes a RUNPATH of its builder into extensions
os.environ.setdefault("LDSHARED", shlex.split(sysconfig.get_config_var("CC"))[0] + " -shared")
build = runpy.run_path("shmcache/_build.py")

setup(
    cffi_modules=["shmcache/_build.py:ffibuilder"],
    ext_modules=[
        Extension(
            "shmcache._hot",
            sources=build["core_sources"]() + build["hot_sources"](),
            include_dirs=["csrc"],
            depends=build["HEADERS"],
            extra_compile_args=build["COMPILE_ARGS"],
            extra_link_args=build["LINK_ARGS"],
        ),
    ],
)
