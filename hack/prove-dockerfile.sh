#!/bin/sh
# Tests the final stage of the Dockerfile with Debian's buildah, without a registry: the scripts of the build stage run on this machine.
# Then the image must contain exactly the files of the root filesystem, and its program must start in it. Needs root, Debian and gcc;
# installs buildah if it is missing.
set -eu

cd "$(dirname "$0")/.."
if [ "$(id -u)" != 0 ]; then
	echo "prove-dockerfile.sh: skipped: it needs root for the container's folders" >&2
	exit 0
fi
if ! command -v buildah >/dev/null; then
	echo "installing buildah" >&2
	if ! apt-get install --yes --quiet --no-install-recommends buildah >/dev/null; then
		echo "prove-dockerfile.sh: skipped: buildah cannot be installed here" >&2
		exit 0
	fi
fi

work=$(mktemp -d)
store="buildah --root $work/storage --runroot $work/run --storage-driver vfs"
# buildah always keeps a cache here; it is removed unless it existed before.
cache=/var/lib/containers
[ ! -e "$cache" ] || cache=
trap '$store rm --all >/dev/null 2>&1 || true; rm -rf "$work" ${cache:+"$cache"}' EXIT
mkdir -p "$work/build" "$work/empty"

deployments/container/programs.sh "$work/programs"
deployments/container/rootfs.sh "$work/programs" "$work/build/rootfs"

# The last FROM and the lines after it.
awk '/^FROM /{stage = ""} {stage = stage $0 "\n"} END {printf "%s", stage}' Dockerfile >"$work/Dockerfile"
$store build --quiet --isolation chroot --build-context "build=$work/build" \
	--tag localhost/prism:proof --file "$work/Dockerfile" "$work/empty" >/dev/null

container=$($store from localhost/prism:proof)
image=$($store mount "$container")
listing() { # type, mode, link target and content of everything
	(cd "$1" && find . -mindepth 1 -printf '%y %m %p %l\n' | LC_ALL=C sort &&
		find . -type f -exec sha256sum {} + | LC_ALL=C sort -k 2)
}
listing "$work/build/rootfs" >"$work/want"
listing "$image" >"$work/got"
diff "$work/want" "$work/got"

entrypoint=$($store inspect --type image --format '{{index .OCIv1.Config.Entrypoint 0}}' localhost/prism:proof)
for program in "$entrypoint --help" "/usr/bin/prism-controller --help" "/usr/bin/prism-tool install --help" "/usr/bin/prism-validate --help" "/usr/bin/nvidia-cdi-hook --version"; do
	# shellcheck disable=SC2086 # program and its argument
	$store run --isolation chroot "$container" -- $program >"$work/output" 2>&1 || {
		cat "$work/output" >&2
		exit 1
	}
	echo "ran $program: $(head -n 1 "$work/output")"
done
echo "the final stage has the $(wc -l <"$work/want") entries of the root filesystem and runs"
