#!/usr/bin/env bash
# Prints the path of the linter, which it builds from its Go module into the user's cache if it is missing. With the argument "fetch" it
# only downloads the modules.
set -euo pipefail
. "$(dirname "$0")/building.sh"
version=v2.15.0
module="github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version"
dir="${XDG_CACHE_HOME:-$HOME/.cache}/prism/bin"
program="$dir/golangci-lint-$version-$(go env GOVERSION)"
# Debug information would be most of the program's size, and part of the cost of its compilation.
build=(env GOFLAGS=-mod=mod CGO_ENABLED=1 GOGC=off GOMEMLIMIT=2GiB go install -trimpath -gcflags=all=-dwarf=false -ldflags "-s -w")
if [ "${1:-}" = fetch ]; then
	[ -x "$program" ] || "${build[@]}" -n "$module" >/dev/null
	exit
fi
if [ ! -x "$program" ]; then
	mkdir -p "$dir"
	# One process builds it; others wait, and find it. The go command inherits the lock, so others also wait for the go command of a killed
	# build: its compiled packages are reused.
	exec 9>"$dir/.lock"
	flock --nonblock 9 || { echo "waiting for another build of golangci-lint" >&2 && flock 9; }
	if [ ! -x "$program" ]; then
		# Leftovers of a killed build.
		rm -rf "$dir"/.build-*
		work=$(mktemp -d "$dir/.build-XXXXXX")
		trap 'rm -rf "$work"' EXIT
		building golangci-lint 150 env GOBIN="$work" GOTMPDIR="$work" "${build[@]}" "$module" >&2
		mv "$work/golangci-lint" "$program"
	fi
fi
echo "$program"
