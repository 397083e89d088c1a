#!/usr/bin/env bash
# Installs missing Debian packages: packages.sh cc|chromium|strace
set -euo pipefail
case "${1:?usage: packages.sh cc|strace}" in
cc) program=gcc packages="gcc libc6-dev" ;;
chromium) program=chromium packages="chromium fonts-dejavu-core" ;;
strace) program=strace packages=strace ;;
*) echo "packages.sh: unknown set of packages \"$1\"; supported values: cc, chromium, strace" >&2 && exit 2 ;;
esac
command -v "$program" >/dev/null && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "packages.sh: $program is missing; install $packages" >&2
	exit 1
fi
echo "installing $packages"
apt-get update -q
# shellcheck disable=SC2086 # a list
DEBIAN_FRONTEND=noninteractive apt-get install -qy -o DPkg::Lock::Timeout=120 --no-install-recommends $packages
