#!/usr/bin/env bash
# Checks on a real GPU that change none of its settings. Skipped without an NVIDIA kernel driver.
# OUT=DIR keeps what the driver answered.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -e /proc/driver/nvidia/version ]; then
	echo "test-gpu: skipped, this machine has no NVIDIA kernel driver"
	exit 0
fi
hack/packages.sh cc
if [ -n "${OUT:-}" ]; then
	mkdir -p "$OUT"
	OUT=$(realpath "$OUT")
	export OUT
fi
go test -count=1 -v -ldflags=-extldflags=-Wl,-z,lazy ./test/gpu/...
# Kernels in a report, where the machine has Nsight Systems.
go test -count=1 -v -run '^TestNsys_GPU_' ./pkg/profiler/native
