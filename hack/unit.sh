#!/usr/bin/env bash
# Runs the tests that need no cluster, in every module. hack/check.sh vets them.
set -euo pipefail
cd "$(dirname "$0")/.."
eval "$(hack/arm64.sh)"
# A retry in one module counts for all.
if [ -z "${VERDICT_DIR:-}" ]; then
	VERDICT_DIR=$(mktemp -d)
	export VERDICT_DIR
	trap 'rm -rf "$VERDICT_DIR"' EXIT
fi
# The browser is installed while other tests run.
log=$(mktemp)
hack/packages.sh chromium >"$log" 2>&1 &
browser=$!
# The others need a browser, a cluster, a GPU, or minutes.
mapfile -t packages < <(go list ./... | grep -vE '/test/(browser|e2e|gpu|lifecycle)$')
status=0
# Like in hack/check.sh, so that both use the same cached results.
hack/verdict.sh test --name unit -- -vet=off -timeout 30m -ldflags="-w -extldflags=-Wl,-z,lazy" -- "${packages[@]}" || status=$?
# The tests of test/gpu that compare with nvidia-smi also run on simulated GPUs.
hack/verdict.sh test --name unit-gpu -- -vet=off -run SimulatedGPUs -ldflags="-w -extldflags=-Wl,-z,lazy" -- ./test/gpu || status=$?
for module in localcluster verdict; do
	hack/verdict.sh test --name "unit-$module" --dir "hack/$module" -- -vet=off -ldflags=-w -- ./... || status=$?
done
if wait "$browser"; then
	hack/verdict.sh test --name unit-browser -- -vet=off -ldflags=-w -- ./test/browser || status=$?
else
	cat "$log" >&2
	echo "unit.sh: the page of kubectl prism ui was not tested" >&2
	status=1
fi
rm -f "$log"
exit "$status"
