#!/bin/sh
# Builds what the image runs: programs.sh OUTPUT_FOLDER
# The Dockerfile and `make image` both use it. VERSION is what the programs
# call themselves.
set -eu

out=${1:?usage: programs.sh OUTPUT_FOLDER}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/../.."

# Without paths and debug information, as the parts of a local cluster are
# compiled (hack/localcluster/parts): the packages of both are compiled once.
build="go build -trimpath -gcflags=all=-dwarf=false"

# go-nvml binds NVIDIA's library when it is first used, so its symbols must
# stay unresolved at start. Without gRPC's trace pages, which are not reachable,
# the linker drops a third of the program: they use text/template, and that
# keeps every method of every type.
for program in prism-kubelet-plugin prism-exporter; do
	CGO_ENABLED=1 $build -tags grpcnotrace \
		-ldflags "-s -w -X main.version=${VERSION:-dev} -extldflags=-Wl,-z,lazy" \
		-o "$out/$program" "./cmd/$program"
done

# Loads the CUDA driver library of its container.
CGO_ENABLED=1 $build -ldflags "-s -w" -o "$out/prism-validate" ./cmd/prism-validate

# With the C library too, so that both programs are made of the same packages.
CGO_ENABLED=1 $build -tags grpcnotrace -ldflags "-s -w -X main.version=${VERSION:-dev}" \
	-o "$out/prism-controller" ./cmd/prism-controller

# Without the C library: the container runtime executes prism-hook on the host,
# whatever that has, prism-mpsd starts programs before all else and again, and
# prism-tool runs in an administrator's image.
for program in prism-mpsd prism-hook prism-tool; do
	CGO_ENABLED=0 $build -tags grpcnotrace -ldflags "-s -w -X main.version=${VERSION:-dev}" -o "$out/$program" "./cmd/$program"
done

# Run inside of containers, whatever these have: without a C library, and with it linked in.
pkg/profiler/native/build.sh "$out"

# Installed on hosts that have none of their own. Built as a module of its own:
# its dependencies are no business of ours.
toolkit=github.com/NVIDIA/nvidia-container-toolkit
version=$(go list -m -f '{{.Version}}' "$toolkit")
CGO_ENABLED=1 GOBIN="$out" go install -trimpath -gcflags=all=-dwarf=false \
	-ldflags "-s -w -X $toolkit/internal/info.version=${version#v} -extldflags=-Wl,-z,lazy" \
	"$toolkit/cmd/nvidia-cdi-hook@$version"
