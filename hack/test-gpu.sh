#!/usr/bin/env bash
# Runs checks on a real GPU that change none of its settings. Skipped without an NVIDIA kernel driver. OUT=DIR stores the driver's answers.
# "hack/test-gpu.sh build" compiles the checks into bin/test-gpu for a GPU node without Go: copy this folder there, and run `make test-gpu`.
set -euo pipefail
cd "$(dirname "$0")/.."
compiled=$PWD/bin/test-gpu
lazy=-ldflags=-extldflags=-Wl,-z,lazy
if [ "${1:-}" = build ]; then
	hack/packages.sh cc
	for package in test/gpu pkg/profiler/native; do
		go test -c -o "$compiled/$package.test" "$lazy" "./$package"
	done
	exit 0
fi
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
tests() {
	if command -v go >/dev/null; then
		go test -count=1 -v "$lazy" -run "$2" "./$1"
	elif [ -x "$compiled/$1.test" ]; then
		(cd "$1" && "$compiled/$1.test" -test.v -test.run "$2")
	else
		echo "test-gpu: this machine has no Go: run hack/test-gpu.sh build where there is one, and copy bin/test-gpu here" >&2
		return 2
	fi
}
tests test/gpu .
# Kernels in a report, if Nsight Systems is installed.
tests pkg/profiler/native '^TestNsys_GPU_'
