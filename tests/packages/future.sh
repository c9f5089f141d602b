#!/usr/bin/env bash
# Runs the unit and model tests on CPythons that only Debian's sid has, in a tree of its own:
#
#   tests/packages/future.sh 3.14 3.15        (make future): needs root, debootstrap, 1 GB, the network
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
tree=${FUTURE_TREE:-$root/build/sid}
versions=("${@:-3.14}")

. "$root/tests/packages/interpreters.sh"
sid_pythons "$tree" "${versions[@]}" || exit 1
failed=0
for version in "${versions[@]}"; do
    rm -rf "$tree/src/$version"
    mkdir -p "$tree/src/$version"
    tar -C "$root" --exclude=./.git --exclude='./.venv*' --exclude=./build --exclude='*.so' -cf - . |
        tar -C "$tree/src/$version" -xf -
    in_sid "$tree" "/src/$version" "python$version -m venv .venv
        .venv/bin/pip install -q -e .[test]
        .venv/bin/python -m pytest -q -p no:cacheprovider tests/unit tests/model" || failed=1
done
exit $failed
