"""The two extension modules; all else is in pyproject.toml and setup.cfg.

Both are compiled from the same core: `_core` binds it for the control plane (cffi), `_hot` is the
CPython extension of the hot path. setuptools ignores cffi_modules in setup.cfg, hence this file.
"""

import runpy

from setuptools import Extension, setup

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
