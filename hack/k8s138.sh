#!/usr/bin/env bash
# Compiles the product with the libraries of the unreleased Kubernetes version, and runs the tests of the code that depends most on them.
# Not part of CI: it needs a newer Go, which the go command downloads, and the module proxy. hack/k8s138.mod is go.mod with these libraries;
# it is written again each time, commit it if it changes.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/building.sh
version=v0.38.0-beta.0
export GOTOOLCHAIN=go1.27.2
module=hack/k8s138.mod

cp go.mod "$module"
edits=(-go=1.27.0)
for library in $(awk '$1 ~ /^k8s\.io\// && $2 ~ /^v0\.37\./ {print $1}' go.mod); do edits+=("-require=$library@$version"); done
# The module proxy lacks version 7.0.1 of the first module; k8s.io/apiextensions-api, from which the second is built since 0.38; and
# k8s.io/ktesting, which only tests of other modules import: -e continues without it.
edits+=(-replace=sigs.k8s.io/structured-merge-diff/v7@v7.0.1=sigs.k8s.io/structured-merge-diff/v7@v7.0.0)
edits+=(-replace=k8s.io/apiextensions-apiserver=k8s.io/apiextensions-apiserver@v0.37.2)
go mod edit "${edits[@]}" "$module"
go mod tidy -e -modfile="$module" 2>/dev/null

flags=(-modfile="$module" -tags=k8s138)
building "the product with Kubernetes $version" 600 go build "${flags[@]}" -o /dev/null ./pkg/... ./cmd/... ./test/allocator ./test/scale/...
go test "${flags[@]}" -vet=off -ldflags="-w -extldflags=-Wl,-z,lazy" ./pkg/plugin/kube ./pkg/plugin/publish
