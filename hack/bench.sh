#!/usr/bin/env bash
# Measures what a claim costs, on a cluster of its own that is always removed. The tables go to standard output, everything else
# to standard error. Exits with 1 when a count exceeds its budget. Environment: MODEL, KUBERNETES; BENCH_KEEP keeps the cluster; PARTS
# measures only these parts (names that a run prints, with commas between them).
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(uname -s)" != Linux ] || [ "$(id -u)" != 0 ]; then
	echo "bench: the node of the cluster is made of Linux namespaces: run it as root on Linux" >&2
	exit 2
fi
export NAME=bench COUNT=8 NODES=1
local=(bin/localcluster --name "$NAME")

exec 9>"${TMPDIR:-/tmp}/prism-bench.lock"
flock --nonblock 9 || { echo "bench: another benchmark runs on this machine: wait until it has finished" >&2; exit 2; }
hack/tools.sh >&2
hack/packages.sh strace >&2
CGO_ENABLED=0 go build -o bin/prism-bench ./test/bench/cmd/prism-bench

# The driver that ours is measured beside, unmodified: its own module, with its own go.mod and go.sum.
example_version=v0.4.0
example="${XDG_CACHE_HOME:-$HOME/.cache}/prism/dra-example-driver-$example_version/dra-example-kubeletplugin"
if [ ! -x "$example" ]; then
	echo "building dra-example-driver $example_version, once" >&2
	source=$(go mod download -json "sigs.k8s.io/dra-example-driver@$example_version" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p')
	mkdir -p "$(dirname "$example")"
	CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly go -C "$source" build -trimpath -o "$example" ./cmd/dra-example-kubeletplugin >&2
fi

# A node of an earlier run would not be new. 9>&-: no process that stays may hold the lock.
"${local[@]}" down >/dev/null 2>&1 9>&- || true
[ -n "${BENCH_KEEP:-}" ] || trap '"${local[@]}" down >&2' EXIT
hack/cluster-up.sh >&2 9>&-
eval "$("${local[@]}" env)"
server=https://$(kubectl get endpointslices kubernetes --output jsonpath='{.endpoints[0].addresses[0]}:{.ports[0].port}')
"${local[@]}" exec n0 "$PWD/bin/prism-bench" --kubeconfig "$KUBECONFIG" --server "$server" --node-name n0 \
	--binary "$PWD/dist/programs/prism-kubelet-plugin" --example "$example" \
	--gpu-load "$(bin/simgpu build)/tool/gpu-load" --parts "${PARTS:-}"
