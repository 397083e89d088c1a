#!/usr/bin/env bash
# Prints the environment with which tests run C code for arm64: a cross compiler and an emulator of Debian, unpacked into the user's cache
# directory (107 MB to download, 155 MB unpacked). If they cannot be downloaded, prints only the reason, on standard error.
set -euo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}/prism/arm64
compiler=$cache/usr/bin/aarch64-linux-gnu-gcc-12 emulator=$cache/usr/bin/qemu-aarch64-static
packages="binutils-aarch64-linux-gnu cpp-12-aarch64-linux-gnu gcc-12-aarch64-linux-gnu gcc-12-aarch64-linux-gnu-base
	libgcc-12-dev-arm64-cross libgcc-s1-arm64-cross libc6-arm64-cross libc6-dev-arm64-cross linux-libc-dev-arm64-cross qemu-user-static"
if [ ! -x "$emulator" ]; then
	if [ "$(uname -m)" != x86_64 ] || ! command -v apt-get >/dev/null; then
		echo "arm64.sh: the packages are for Debian on x86_64 only" >&2
		exit 0
	fi
	mkdir -p "$(dirname "$cache")"
	new=$(mktemp -d "$cache.XXXXXX")
	trap 'rm -rf "$new"' EXIT
	[ "$(id -u)" != 0 ] || apt-get update -q >&2
	# shellcheck disable=SC2086 # a list
	(cd "$new" && apt-get download -q $packages >&2) || exit 0
	mkdir "$new/root"
	for package in "$new"/*.deb; do
		case $package in
		# The package contains an emulator for every architecture.
		*/qemu-*) dpkg-deb --fsys-tarfile "$package" | tar -xC "$new/root" ./usr/bin/qemu-aarch64-static ;;
		*) dpkg-deb -x "$package" "$new/root" ;;
		esac
	done
	rm -rf "$cache"
	mv "$new/root" "$cache"
fi
echo "export PATTERN_ARM64_CC='env LD_LIBRARY_PATH=$cache/usr/lib/x86_64-linux-gnu $compiler'"
echo "export PATTERN_ARM64_RUN='$emulator'"
