# The CPythons of packages and tests; sourced by .ci/run, future.sh and wheels.sh.
#
# An interpreter is found in PATH or pyenv, or installed in a tree of Debian's sid, which has versions
# that Debian 12 does not have. The tree stays in $FUTURE_TREE (build/sid) for the next run.

# An interpreter of this version that runs: from PATH, or one that pyenv has and does not show.
python_of() {
    local found
    for found in "$(command -v "python$1")" "$(pyenv root 2>/dev/null)"/versions/"$1".*/bin/python3; do
        "$found" -c '' 2>/dev/null && { echo "$found"; return 0; }
    done
    echo "python$1 is not here" >&2
    return 1
}

# Makes the tree $1 if it is not there, and installs CPythons of the versions that follow.
sid_pythons() {
    local tree=$1 version
    shift
    command -v debootstrap >/dev/null || { echo "debootstrap is missing: apt-get install debootstrap" >&2; return 1; }
    [ "$(id -u)" = 0 ] || { echo "a tree of Debian's sid needs root: sudo make ..." >&2; return 1; }
    [ -x "$tree/usr/bin/apt-get" ] || debootstrap --variant=minbase \
        --include=ca-certificates,gcc,g++,libc6-dev,libffi-dev,make,git,procps,iproute2,util-linux \
        sid "$tree" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" || return 1
    cp -L /etc/ssl/certs/ca-certificates.crt "$tree/etc/ssl/certs/ca-certificates.crt" || return 1
    cp -L /etc/resolv.conf "$tree/etc/resolv.conf" || return 1
    for version in "$@"; do
        chroot "$tree" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
            "python$version" "python$version-venv" "python$version-dev" || return 1
    done
}

# Runs a command of bash in the folder $2 of the tree $1. /proc and /dev/shm are private.
in_sid() {
    unshare --mount bash -euc 'mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"
        mount -t tmpfs tmpfs "$1/dev/shm"
        exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
            PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
            ${SOURCE_DATE_EPOCH:+SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH} \
            bash -euc "cd $2; $3"' in_sid "$@"
}
