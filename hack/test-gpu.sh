#!/usr/bin/env bash
# Read-only checks on a real GPU. Skipped without an NVIDIA kernel driver.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -e /proc/driver/nvidia/version ]; then
	echo "test-gpu: skipped, this machine has no NVIDIA kernel driver"
	exit 0
fi
hack/packages.sh cc
go test -count=1 -v -ldflags=-extldflags=-Wl,-z,lazy ./test/gpu/...
