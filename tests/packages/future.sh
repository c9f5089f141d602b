#!/usr/bin/env bash
# Runs the unit and model tests on CPythons that only Debian's sid has, in a tree of its own:
#
#   tests/packages/future.sh 3.14 3.15        (make future): needs root, debootstrap, 1 GB, the network
#
# The tree stays in $FUTURE_TREE (build/sid) for the next run. /dev/shm and /proc are private.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
tree=${FUTURE_TREE:-$root/build/sid}
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
versions=("${@:-3.14}")

command -v debootstrap >/dev/null || { echo "debootstrap is missing: apt-get install debootstrap"; exit 1; }
[ -x "$tree/usr/bin/apt-get" ] || debootstrap --variant=minbase \
    --include=ca-certificates,gcc,g++,libc6-dev,libffi-dev,make,git,procps,iproute2,util-linux sid "$tree" "$mirror"
cp -L /etc/ssl/certs/ca-certificates.crt "$tree/etc/ssl/certs/ca-certificates.crt"
cp -L /etc/resolv.conf "$tree/etc/resolv.conf"
for version in "${versions[@]}"; do
    chroot "$tree" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
        "python$version" "python$version-venv" "python$version-dev"
done

failed=0
for version in "${versions[@]}"; do
    rm -rf "$tree/src/$version"
    mkdir -p "$tree/src/$version"
    tar -C "$root" --exclude=./.git --exclude='./.venv*' --exclude=./build --exclude='*.so' -cf - . |
        tar -C "$tree/src/$version" -xf -
    unshare --mount bash -euc 'mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"
        mount -t tmpfs tmpfs "$1/dev/shm"
        exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
            PIP_CERT=/etc/ssl/certs/ca-certificates.crt bash -euc "cd /src/$2
                python$2 -m venv .venv
                .venv/bin/pip install -q -e .[test]
                .venv/bin/python -m pytest -q -p no:cacheprovider tests/unit tests/model"' \
        future "$tree" "$version" || failed=1
done
exit $failed
