#!/usr/bin/env bash
# Shows a pod whose program runs under NVIDIA Nsight Systems, on the cluster of `make demo`, which is booted where it does not run. The
# profiler comes from Debian's package nsight-systems (non-free), which is downloaded once and kept in the user's cache.
set -euo pipefail
cd "$(dirname "$0")/.."
export NAME=demo
# shellcheck source=demo/say.sh
. demo/say.sh
linux demo-profile
make --no-print-directory tools

say "Nsight Systems and Python from Debian's packages, as images"
archives=$(go run ./test/images/cmd/images localhost/nsys:2022.4.2 localhost/prism-test-programs:1)
bin/localcluster --name "$NAME" status >/dev/null 2>&1 || make --no-print-directory cluster-up
# shellcheck disable=SC2086 # a list of paths without blanks
bin/localcluster --name "$NAME" load-image $archives
HELM_ARGS="--reset-then-reuse-values --values demo/profiler.yaml ${HELM_ARGS:-}" make --no-print-directory cluster-up
eval "$(bin/localcluster --name "$NAME" env)"
export PATH=$PWD/bin:$PATH
kubectl delete --ignore-not-found --wait -f demo/specs/profile-training/pod.yaml >/dev/null 2>&1

say "A pod requests a GPU, and its claim that Python programs are profiled; it starts once the node has proven the profiler"
sed -n '/parameters:/,/^---/{/^---/d;p}' demo/specs/profile-training/pod.yaml
run kubectl apply -f demo/specs/profile-training/pod.yaml
run kubectl wait --for=jsonpath='{.status.phase}'=Succeeded pod/training --timeout=15m
run kubectl logs training
reported() { kubectl get reports --field-selector spec.claim=training --no-headers 2>/dev/null | grep -q Ready; }
await "the report of the claim is not Ready: kubectl get reports" 600 reported

say "Pod and claim go, the report stays"
run kubectl delete -f demo/specs/profile-training/pod.yaml
run kubectl prism profile list --claim training
downloads=$(mktemp -d)
trap 'rm -rf "$downloads"' EXIT
run kubectl prism profile download --claim training --output "$downloads"

say "What the program did"
nsys=$(go run ./test/images/cmd/images --nsys)
echo '$ nsys stats --report osrtsum *.nsys-rep'
"$nsys" stats --quiet --report osrtsum "$downloads"/*.nsys-rep 2>/dev/null | tail -n +2 | head -n 8

say "The cluster stays. To explore and remove it:"
echo "export KUBECONFIG=$KUBECONFIG PATH=$PWD/bin:\$PATH"
echo "make cluster-down NAME=$NAME"
