#!/usr/bin/env bash
# Builds the programs for demo and e2e into bin/.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/building.sh
hack/packages.sh cc
mkdir -p bin

tools() {
	# Built like deployments/container/programs.sh and the parts of a cluster, so that packages are compiled once for all.
	local flags=(-trimpath -gcflags=all=-dwarf=false -tags grpcnotrace -ldflags "-s -w")
	CGO_ENABLED=0 go -C hack/localcluster build "${flags[@]}" -o "$PWD/bin/localcluster" ./cmd/localcluster
	# The modules of a cluster's parts are downloaded while the other programs are compiled; this does nothing if the parts are built.
	bin/localcluster fetch ${KUBERNETES:+--kubernetes "$KUBERNETES"} >/dev/null 2>&1 </dev/null &
	CGO_ENABLED=0 go build "${flags[@]}" -o bin/simgpu ./test/simgpu/cmd/simgpu
	# With the C library, like most programs with a Kubernetes client.
	CGO_ENABLED=1 go build "${flags[@]}" -o bin/kubectl-prism ./cmd/kubectl-prism
}
# Later builds are short.
if [ -x bin/kubectl-prism ]; then tools; else building "the tools in bin" 150 tools; fi
