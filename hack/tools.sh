#!/usr/bin/env bash
# Builds the programs that demo and e2e use into bin/.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/building.sh
hack/packages.sh cc
mkdir -p bin

tools() {
	CGO_ENABLED=0 go -C hack/localcluster build -o "$PWD/bin/localcluster" ./cmd/localcluster
	# The modules of a cluster's parts come while the other programs are compiled; there is nothing to do where the parts are built.
	bin/localcluster fetch ${KUBERNETES:+--kubernetes "$KUBERNETES"} >/dev/null 2>&1 </dev/null &
	CGO_ENABLED=0 go build -o bin/simgpu ./test/simgpu/cmd/simgpu
	CGO_ENABLED=0 go build -o bin/kubectl-prism ./cmd/kubectl-prism
}
# Later builds are short.
if [ -x bin/kubectl-prism ]; then tools; else building "the tools in bin" 100 tools; fi
