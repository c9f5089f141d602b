#!/usr/bin/env bash
# Builds the wheel for aarch64 on x86-64, and uses it in an emulator, which has the instructions of
# the processor but not the weaker order of its memory accesses.
#
#   tests/packages/aarch64.sh DIRECTORY     (make aarch64): the wheel stays in DIRECTORY
#
# Needs root, debootstrap, qemu-user-static, gcc-aarch64-linux-gnu, Python 3.11 and the network. The
# tree with Debian 12's Python of that processor stays in $ARM64_TREE (build/arm64) for the next run.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
place=$(mkdir -p "$1" && cd "$1" && pwd)
python=${PYTHON:-python3.11}
tree=${ARM64_TREE:-$root/build/arm64}
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
target=aarch64-linux-gnu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for tool in debootstrap qemu-aarch64-static $target-gcc $target-strip; do
    command -v $tool > /dev/null || {
        echo "$tool is missing: apt-get install debootstrap qemu-user-static gcc-$target"; exit 1; }
done
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
    echo "$python is not Python 3.11, as that of the tree"; exit 1; }

if [ ! -e "$tree/usr/include/python3.11/Python.h" ]; then
    debootstrap --foreign --variant=minbase --arch=arm64 --include=python3.11,libpython3.11-dev \
        bookworm "$tree" "$mirror"
    for package in "$tree"/var/cache/apt/archives/*.deb; do dpkg -x "$package" "$tree"; done
fi
rm -rf "$tree"/{dev,proc,sys,tmp}  # the emulator would find these before the machine's own

# The build runs on this Python, with the names and flags of the other one.
git -C "$root" ls-files -z | tar -C "$root" --null -T - -cf - | (mkdir "$scratch/src" && tar -C "$scratch/src" -xf -)
mkdir "$scratch/names" "$scratch/bin"
cp "$tree/usr/lib/python3.11/_sysconfigdata__$target.py" "$scratch/names"
ln -s "$(command -v $target-strip)" "$scratch/bin/strip"
(
    cd "$scratch/src"
    export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
    export PYTHONPATH=$scratch/names _PYTHON_SYSCONFIGDATA_NAME=_sysconfigdata__$target
    export _PYTHON_HOST_PLATFORM=linux-aarch64 LDSHARED="$target-gcc -shared"
    export CC="$target-gcc -I$tree/usr/include/python3.11 -I$tree/usr/include"
    "$python" -m build --wheel --no-isolation --outdir "$scratch/built" . > "$scratch/build.log" 2>&1 || {
        cat "$scratch/build.log"; exit 1; }
)
PATH=$scratch/bin:$(dirname "$python"):$PATH "$python" -m auditwheel repair --strip \
    --wheel-dir "$scratch/wheel" "$scratch"/built/*.whl > "$scratch/repair.log" 2>&1 || {
    cat "$scratch/repair.log"; exit 1; }
wheel=$(echo "$scratch"/wheel/*manylinux*aarch64.whl)
PYTHONPATH=$root/tests/packages "$python" -c '
import sys
from pathlib import Path
from hardened import faults
sys.exit("\n".join(faults(Path(sys.argv[1]))) or None)' "$wheel"

# Used as by a program: a writer and a reader, with the published wheels of its dependencies.
"$python" -m pip install -q --target "$scratch/installed" --only-binary :all: --python-version 3.11 \
    --implementation cp --platform manylinux_2_34_aarch64 --platform manylinux_2_17_aarch64 \
    --platform manylinux2014_aarch64 "$wheel" pytest h11 hypothesis orjson urllib3
cat > "$scratch/python" <<END
#!/bin/sh
exec qemu-aarch64-static -L $tree $tree/usr/bin/python3.11 "\$@"
END
chmod +x "$scratch/python"
cd "$scratch"
cp -r "$root"/{tests,csrc,docs,pyproject.toml} .
export PYTHONPATH=$scratch/installed PYTHONDONTWRITEBYTECODE=1
./python -c 'import platform, shmcache; print(platform.machine(), shmcache.__file__)'
# Tests start other interpreters, and the kernel knows this one by the script alone.
./python -c '
import sys
import pytest
sys.executable = sys.argv[1]
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]]))' \
    "$scratch/python" tests/unit/{memory,writer,reader,views}
cp "$wheel" "$place"
echo "$(basename "$wheel") is in $place"
