#!/usr/bin/env bash
# Boots a real one-node Kubernetes with simulated GPUs, installs the chart, and runs one pod with a GPU, a process in it that works, and a
# second pod with a MIG device of another GPU. The cluster stays, so that more can be tried on it; `make cluster-down NAME=demo` removes it.
set -euo pipefail
cd "$(dirname "$0")/.."
export NAME=demo

# shellcheck source=demo/say.sh
. demo/say.sh
linux demo

# GPUs whose MIG mode changes without a reset.
mig=
case $MODEL in h100-* | h200-* | b200-*) mig=yes ;; esac
make --no-print-directory tools
say "A node with 8 simulated GPUs (MODEL=$MODEL), and the chart"
HELM_ARGS="--set exporter.interval=1s ${mig:+-f demo/values.yaml --set config.map.demo.gpus[0].select.indices[0]=$((COUNT - 1))} ${HELM_ARGS:-}" make --no-print-directory cluster-up
eval "$(bin/localcluster --name "$NAME" env)"

say "The devices of the node"
published() { kubectl get resourceslices -o jsonpath='{.items[*].spec.devices[*].name}' | grep -q gpu-; }
await "no GPU is published: kubectl -n prism-system logs ds/prism-kubelet-plugin" 300 published
echo '$ kubectl get resourceslices   (its devices of type gpu)'
kubectl get resourceslices -o go-template='{{range .items}}{{$pool := .spec.pool.name}}{{range .spec.devices}}{{if eq .attributes.type.string "gpu"}}{{printf "%s/%-14s %-22s %s  %s\n" $pool .name .attributes.productName.string .capacity.memory.value .attributes.uuid.string}}{{end}}{{end}}{{end}}'

say "A pod requests one GPU"
kubectl delete --ignore-not-found --wait -f demo/specs/whole-gpu/pod.yaml >/dev/null 2>&1
run kubectl apply -f demo/specs/whole-gpu/pod.yaml
run kubectl wait --for=condition=Ready pod/whole-gpu --timeout=5m

say "Inside the container"
run kubectl exec whole-gpu -- nvidia-smi -L

say "The status of the claim names the GPU"
claim=$(kubectl get pod whole-gpu -o jsonpath='{.status.resourceClaimStatuses[0].resourceClaimName}')
printf '$ kubectl describe resourceclaim %s\n' "$claim"
kubectl describe resourceclaim "$claim" | awk '/^Status:/ {status = 1} status && /^  Devices:/ {on = 1} /^  Reserved For:/ {on = 0} on'

say "A process in the container works, and the metrics of the node name its pod"
kubectl exec --stdin whole-gpu -- sh -c 'cat >/tmp/gpu-load && chmod 755 /tmp/gpu-load' <"$(bin/simgpu build)/tool/gpu-load"
load='/tmp/gpu-load --memory 2Gi --sm 60 --duration 10m'
echo "\$ kubectl exec whole-gpu -- $load &"
kubectl exec whole-gpu -- sh -c "$load >/dev/null 2>&1 </dev/null &"
exporter=$(kubectl --namespace prism-system get pods --selector app.kubernetes.io/component=exporter -o jsonpath='{.items[0].metadata.name}')
page=/api/v1/namespaces/prism-system/pods/$exporter:9400/proxy/metrics
echo "\$ kubectl get --raw $page   (of the pod)"
measured() { lines=$(kubectl get --raw "$page" | grep '^prism_container_gpu_.*pod="whole-gpu"') && grep -q 'utilization_ratio.* 0\.[1-9]' <<<"$lines"; }
await "there are no metrics of the pod: kubectl get --raw ${page%metrics}readyz" 300 measured
echo "$lines"

if [ -n "$mig" ]; then
	say "A second pod requests 19 GiB of GPU memory, and a MIG device is created for it"
	kubectl delete --ignore-not-found --wait -f demo/specs/mig-memory/pod.yaml >/dev/null 2>&1
	run kubectl apply -f demo/specs/mig-memory/pod.yaml
	run kubectl wait --for=condition=Ready pod/mig-memory --timeout=5m
	run kubectl exec mig-memory -- nvidia-smi -L
	claim=$(kubectl get pod mig-memory -o jsonpath='{.status.resourceClaimStatuses[0].resourceClaimName}')
	run kubectl get resourceclaim "$claim" -o jsonpath='{.status.devices[0].data}{"\n"}'
fi

say "The cluster stays. To explore and remove it:"
echo "export KUBECONFIG=$KUBECONFIG"
echo "make cluster-down NAME=$NAME"
