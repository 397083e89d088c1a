#!/usr/bin/env bash
# Measures the cost of a claim, on a separate cluster that is always removed. The tables go to standard output, everything else to standard
# error. Exits with 1 if a count exceeds its budget. Environment: MODEL, KUBERNETES; BENCH_KEEP keeps the cluster; PARTS measures only these
# parts (names that a run prints, separated by commas); BASE is the commit whose build the part tenants compares with.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/building.sh
if [ "$(uname -s)" != Linux ] || [ "$(id -u)" != 0 ]; then
	echo "bench: the node of the cluster is made of Linux namespaces: run it as root on Linux" >&2
	exit 2
fi
export NAME=bench COUNT=8 NODES=1
local=(bin/localcluster --name "$NAME")
base=
case ,${PARTS:-tenants}, in *,tenants,*) base=${BASE:-1bb5e8bb} ;; esac
if [ -n "$base" ] && ! git cat-file -e "$base^{commit}" 2>/dev/null; then
	echo "bench: $base is no commit of this clone: fetch it, or set BASE to the commit to compare with" >&2
	exit 2
fi

exec 9>"${TMPDIR:-/tmp}/prism-bench.lock"
flock --nonblock 9 || { echo "bench: another benchmark runs on this machine: wait until it has finished" >&2; exit 2; }
hack/tools.sh >&2
hack/packages.sh strace >&2
CGO_ENABLED=0 go build -o bin/prism-bench ./test/bench/cmd/prism-bench

# The driver for comparison, unmodified: a separate module, with its own go.mod and go.sum.
example_version=v0.4.0
example="${XDG_CACHE_HOME:-$HOME/.cache}/prism/dra-example-driver-$example_version/dra-example-kubeletplugin"
if [ ! -x "$example" ]; then
	echo "building dra-example-driver $example_version, once" >&2
	source=$(go mod download -json "sigs.k8s.io/dra-example-driver@$example_version" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p')
	mkdir -p "$(dirname "$example")"
	CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly go -C "$source" build -trimpath -o "$example" ./cmd/dra-example-kubeletplugin >&2
fi

unpacked=$(mktemp -d)
ended() {
	[ ! -e "$unpacked/source" ] || git worktree remove --force "$unpacked/source" >&2
	rm -rf "$unpacked"
	[ -n "${BENCH_KEEP:-}" ] || "${local[@]}" down >&2
}
trap ended EXIT

# The build for comparison, in a separate working tree; its programs are built like the programs of the image.
before=()
if [ -n "$base" ]; then
	git worktree add --quiet --detach "$unpacked/source" "$base" >&2
	mkdir "$unpacked/before"
	CGO_ENABLED=1 building "the programs of the build before" 60 go -C "$unpacked/source" build -trimpath -gcflags=all=-dwarf=false -tags grpcnotrace \
		-ldflags "-s -w -X main.version=$base -extldflags=-Wl,-z,lazy" -o "$unpacked/before/" ./cmd/prism-kubelet-plugin ./cmd/prism-controller >&2
	before=(--before "$unpacked/before" --before-name "build $base")
fi

# A node of an earlier run would not be new. 9>&-: no remaining process may hold the lock.
"${local[@]}" down >/dev/null 2>&1 9>&- || true
hack/cluster-up.sh >&2 9>&-
eval "$("${local[@]}" env)"
# The programs that run without a container are written like a container runtime unpacks an image, 32 KiB at a time: the kernel maps a file
# in units of its writes, so the resident memory of one program would otherwise differ between its files.
for program in dist/programs/* "$example"; do
	dd if="$program" of="$unpacked/${program##*/}" bs=32K status=none
	chmod 0755 "$unpacked/${program##*/}"
done
server=https://$(kubectl get endpointslices kubernetes --output jsonpath='{.endpoints[0].addresses[0]}:{.ports[0].port}')
"${local[@]}" exec n0 "$PWD/bin/prism-bench" --kubeconfig "$KUBECONFIG" --server "$server" --node-name n0 \
	--binary "$unpacked/prism-kubelet-plugin" --example "$unpacked/${example##*/}" \
	--gpu-load "$(bin/simgpu build)/tool/gpu-load" --parts "${PARTS:-}" "${before[@]}"

# Parts without a cluster: programs in separate containers, and the servers of 1,000 nodes.
programs() {
	go test -count 1 -run '^$' -bench '^Benchmark(Exec_NoMatch_OverNone|Exec_Disarmed_OverNone|Start_OverReady|Command_OverNsysStart|Command_SpreadOf20|Wait_OverNsysLaunch|List_1000Nodes|Command_1000Nodes)$' -benchtime 1x ./pkg/profiler/native ./pkg/controller/reports
}
row() {
	local value
	value=$(awk -v unit="$2" '{ for (i = 2; i <= NF; i++) if ($i == unit) print $(i - 1) }' <<<"$measured")
	printf '| %s | %s %s | %s |\n' "$1" "${value:?hack/bench.sh: no $2 was measured}" "${2%%/*}" "$3"
}
case ,${PARTS:-programs}, in *,programs,*)
	measured=$(programs)
	printf '\n| programs of profiled containers, and their reports | p50 | budget |\n|---|--:|--:|\n'
	row 'execution of a program, without the library (1000)' µs/none ''
	row 'library that does nothing, added time: median difference of 1,000 pairs' µs/empty-over-none ''
	row 'library if no pattern matches, added time: median difference of 1,000 pairs' µs/over-none '≤ 50 µs'
	row 'start of a matching process, without the time in which the profiler gets ready (40)' ms/over-ready '≤ 20 ms'
	row 'library of a claim that is not armed, added time: median difference of 1,000 pairs' µs/disarmed-over-none 'as without a match'
	row 'command to record, until a waiting process records (20)' ms/command-p50 ''
	row 'that time, compared to nsys start alone: p50' times/nsys-start-p50 '≤ 1.2 times'
	row 'that time, compared to nsys start alone: p99' times/nsys-start-p99 '≤ 1.2 times'
	row '20 processes that one command records: from the first to the last begin' s/spread ''
	row 'process that waits, in 10 seconds: wake-ups of prism-run' wake-ups/waiting '0'
	row 'its profiler: memory (PSS)' MiB/waiting ''
	row 'its profiler: memory (PSS), compared to nsys launch alone' times/nsys-launch '≤ 1.1 times'
	row 'list of 10,000 reports of 1,000 nodes, all on this machine: first' ms/first '≤ 3,000 ms'
	row 'list of 10,000 reports of 1,000 nodes, all on this machine: again' ms/again ''
	row 'command for 100,000 sessions of 1,000 nodes, all on this machine: first' ms/first-command ''
	row 'command for 100,000 sessions of 1,000 nodes, all on this machine: again' ms/command-again ''
	echo 'measured programs (programs)' >&2
	;;
esac
