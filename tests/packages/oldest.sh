#!/usr/bin/env bash
# Runs the unit and model tests with the lowest version of every dependency that pyproject.toml allows:
#
#   tests/packages/oldest.sh            (make oldest): needs the network; PYTHON=python3.12
#
# The tree is copied to build/oldest/src, with a virtual environment of its own beside it. The versions
# are chosen by uv: the lowest of each dependency that is named, any of those that these need.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/build/oldest
rm -rf "$here/src"
mkdir -p "$here/src"
tar -C "$root" --exclude=./.git --exclude='./.venv*' --exclude=./build --exclude='*.so' -cf - . |
    tar -C "$here/src" -xf -
[ -x "$here/venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$here/venv"
"$here/venv/bin/python" -m pip install -q uv
cd "$here/src"
"$here/venv/bin/uv" pip install -q --python "$here/venv/bin/python" --index-strategy unsafe-best-match \
    ${UV_FLAGS:-} --resolution lowest-direct -e '.[test]'
"$here/venv/bin/uv" pip freeze --python "$here/venv/bin/python" >"$here/versions.txt"
exec "$here/venv/bin/python" -m pytest -q -p no:cacheprovider "${@:-tests/unit}" tests/model
