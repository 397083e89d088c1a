#!/usr/bin/env bash
# Builds the programs that demo and e2e use into bin/.
set -euo pipefail
cd "$(dirname "$0")/.."
hack/packages.sh cc
mkdir -p bin
CGO_ENABLED=0 go build -o bin/simgpu ./test/simgpu/cmd/simgpu
CGO_ENABLED=0 go -C hack/localcluster build -o "$PWD/bin/localcluster" ./cmd/localcluster
CGO_ENABLED=0 go build -o bin/kubectl-prism ./cmd/kubectl-prism
