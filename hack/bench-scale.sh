#!/usr/bin/env bash
# Measures the cost of a layout for the scheduler: tables of one node first, then pods per second with the real scheduler and NODES fake
# nodes, on a separate cluster for each layout; before that, requests, memory and CPU of kubectl prism explain in a cluster of EXPLAINED
# nodes, which fails if a budget is exceeded. The tables go to standard output, everything else to standard error. Environment:
#   NODES   number of fake nodes (500); layouts with MIG devices use at most 500 of them: 1,000 need 8 GB for the API server alone
#   PODS    maximum number of pods in a phase (500); fewer if the nodes do not have twice as many free devices
#   LIMIT   time limit of a phase (45s)
#   LAYOUTS layouts to measure (all); "none" measures only kubectl prism explain
#   EXPLAINED   number of nodes for kubectl prism explain (1000)
#   KUBERNETES  version of the clusters; the tables use the allocator of 1.37, for 1.38 the allocator of 1.38
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(uname -s)" != Linux ] || [ "$(id -u)" != 0 ]; then
	echo "bench-scale: the cluster is made of Linux namespaces: run it as root on Linux" >&2
	exit 2
fi
nodes=${NODES:-500}
local=(bin/localcluster --name bench-scale)
exec 9>"${TMPDIR:-/tmp}/prism-bench.lock"
flock --nonblock 9 || { echo "bench-scale: another benchmark runs on this machine: wait until it has finished" >&2; exit 2; }
hack/tools.sh >&2
build=(go build)
case ${KUBERNETES:-} in 1.38.*) build=(env GOTOOLCHAIN=go1.27.2 go build -modfile=hack/k8s138.mod -tags=k8s138) ;; esac
CGO_ENABLED=0 "${build[@]}" -o bin/prism-scale ./test/scale/cmd/prism-scale
go build -o bin/prism-explain-scale ./test/scale/cmd/prism-explain-scale
bin/prism-explain-scale --nodes "${EXPLAINED:-1000}"
[ "${LAYOUTS:-}" != none ] || exit 0
work=$(mktemp -d)
trap '"${local[@]}" down >&2; rm -rf "$work"' EXIT
scale=(bin/prism-scale --report "$work/report.json" --work "$work" --pods "${PODS:-500}" --limit "${LIMIT:-45s}")
"${scale[@]}" tables >&2
for layout in ${LAYOUTS:-prism-whole nvidia-whole prism-whole-monitor prism-mig nvidia-mig}; do
	"${local[@]}" down >/dev/null 2>&1 9>&- || true
	"${local[@]}" up ${KUBERNETES:+--kubernetes "$KUBERNETES"} >&2 9>&-
	# The run starts a scheduler without a request limit, and only one controller, which creates claims from templates.
	"${local[@]}" stop scheduler >&2
	"${local[@]}" stop controller-manager >&2
	eval "$("${local[@]}" env)"
	programs=$(dirname "$("${local[@]}" build ${KUBERNETES:+--kubernetes "$KUBERNETES"} kubernetes | grep -E '/kube-scheduler$')")
	count=$nodes
	case $layout in *-mig) [ "$count" -le 500 ] || count=500 ;; esac
	"${scale[@]}" --kubeconfig "$KUBECONFIG" --scheduler "$programs/kube-scheduler" --controller-manager "$programs/kube-controller-manager" \
		--apiserver "$programs/kube-apiserver" --nodes "$count" --layout "$layout" throughput >&2
done
"${scale[@]}" print
