#!/usr/bin/env bash
# Builds the image without a container engine: image.sh [OUTPUT_TAR]. The root filesystem is the one of the Dockerfile.
set -euo pipefail
cd "$(dirname "$0")/.."
output=${1:-dist/prism.tar}
version=$(awk '/^appVersion:/ {gsub(/"/, "", $2); print $2}' deployments/helm/prism/Chart.yaml)
mkdir -p dist
VERSION="$version" deployments/container/programs.sh dist/programs
deployments/container/rootfs.sh dist/programs dist/rootfs
bin/localcluster image build --name "localhost/prism:$version" --rootfs dist/rootfs \
	--entrypoint /usr/bin/prism-kubelet-plugin --output "$output"
echo "localhost/prism:$version is in $output"
