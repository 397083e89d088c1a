#!/usr/bin/env bash
# Downloads the modules of tools that a first run builds besides the project: the linter, the parts of a cluster, Prometheus. In the
# background it keeps the network busy while compilers keep the processors busy. Nothing waits for it, and no build depends on it.
set -uo pipefail
cd "$(dirname "$0")/.."
hack/golangci-lint.sh fetch
flags=(-trimpath -gcflags=all=-dwarf=false -tags grpcnotrace -ldflags "-s -w")
export CGO_ENABLED=0
go -C hack/localcluster run "${flags[@]}" ./cmd/localcluster fetch
go -C hack/localcluster run "${flags[@]}" ./cmd/localcluster fetch prometheus
