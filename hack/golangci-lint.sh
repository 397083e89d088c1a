#!/usr/bin/env bash
# Prints the path of the linter, building it from its Go module into the user's cache when it is not there yet.
set -euo pipefail
version=v2.15.0
dir="${XDG_CACHE_HOME:-$HOME/.cache}/prism/bin"
program="$dir/golangci-lint-$version-$(go env GOVERSION)"
if [ ! -x "$program" ]; then
	echo "building golangci-lint $version (a few minutes, once)" >&2
	mkdir -p "$dir"
	work=$(mktemp -d "$dir/.build-XXXXXX")
	trap 'rm -rf "$work"' EXIT
	GOBIN="$work" GOFLAGS=-mod=mod go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version" >&2
	mv "$work/golangci-lint" "$program"
fi
echo "$program"
