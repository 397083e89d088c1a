#!/usr/bin/env bash
# Builds the image without a container engine: image.sh [OUTPUT_TAR]. The root filesystem is the same as in the Dockerfile. The tag ends
# with a digest of the programs, so a changed image gets another tag; it is written to dist/image.tag.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/building.sh
output=${1:-dist/prism.tar}
version=$(awk '/^appVersion:/ {gsub(/"/, "", $2); print $2}' deployments/helm/prism/Chart.yaml)
mkdir -p dist
# Several clusters may be booted at once.
exec 9>dist/.lock
flock 9
programs=(env VERSION="$version" deployments/container/programs.sh dist/programs)
# Later builds are short.
if [ -e dist/image.tag ]; then "${programs[@]}"; else building "the programs of the image" 60 "${programs[@]}"; fi
tag="$version-$(cat dist/programs/* deployments/container/rootfs.sh | sha256sum | cut -c 1-12)"
if [ ! -e "$output" ] || [ "$tag" != "$(cat dist/image.tag 2>/dev/null)" ]; then
	deployments/container/rootfs.sh dist/programs dist/rootfs
	bin/localcluster image build --name "localhost/prism:$tag" --rootfs dist/rootfs \
		--entrypoint /usr/bin/prism-kubelet-plugin --output "$output"
	echo "$tag" >dist/image.tag
fi
echo "localhost/prism:$tag is in $output"
