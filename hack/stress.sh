#!/usr/bin/env bash
# Runs tests beside busy loops, to find deadlines and waits that fail on a busy machine: the packages and the e2e areas that changed since
# the merge base with the upstream branch. Environment:
#   PACKAGES  these packages instead, and no e2e
#   RUN       regular expression that selects tests: tests of PACKAGES, or without PACKAGES only e2e
#   N         number of runs of each test of a package (5); e2e runs once
#   LOOPS     number of busy loops (4)
set -euo pipefail
cd "$(dirname "$0")/.."
hack/packages.sh cc
count=${N:-5} loops=${LOOPS:-4}

# changed prints the packages with changed files that have tests. Lifecycle takes hours with the race detector, test/gpu needs a GPU.
changed() {
	local file dir
	while read -r file; do
		dir=$(dirname "$file")
		# testdata and similar folders belong to the package above.
		while [ "$dir" != . ] && ! compgen -G "$dir/*_test.go" >/dev/null; do dir=$(dirname "$dir"); done
		[ "$dir" = . ] || echo "./$dir"
	done | sort -u | grep -vE '^\./test/(e2e|gpu|lifecycle)$' || true
}

packages=() areas=
if [ -n "${PACKAGES:-}" ]; then
	read -ra packages <<<"$PACKAGES"
elif [ -z "${RUN:-}" ]; then
	files=$(hack/changed.sh 2>/dev/null) || { echo "stress: no upstream branch to compare with: set PACKAGES or RUN" >&2 && exit 2; }
	mapfile -t packages < <(changed <<<"$files")
	areas=changed
fi

pids=() running=
ended() {
	[ -z "$running" ] || kill -- "-$running" 2>/dev/null || true
	[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true
	wait || true
}
trap ended EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
# Each loop runs in a separate session, which gets its own CPU weight from the kernel. It exits by itself if this script was killed.
for ((i = 0; i < loops; i++)); do
	# shellcheck disable=SC2016 # the loop's own variables
	setsid sh -c 'while [ -e "/proc/$1" ]; do i=0; while [ "$i" -lt 100000 ]; do i=$((i + 1)); done; done' sh $$ &
	pids+=($!)
done

# run runs a command in a separate process group, which ends with this script.
run() {
	echo "stress: beside $loops busy loops: $*"
	set -m
	"$@" &
	running=$!
	set +m
	wait "$running" || failed+=("$*")
	running=
}

failed=()
for package in "${packages[@]}"; do
	module=.
	case $package in ./hack/localcluster/* | ./hack/verdict | ./hack/verdict/*)
		module=$(cut -d / -f 1-3 <<<"$package")
		package=.${package#"$module"}
		;;
	esac
	# Programs that bind NVIDIA's library must leave its symbols unresolved until they are used.
	run go -C "$module" test -race -count "$count" -timeout 0 -ldflags=-extldflags=-Wl,-z,lazy ${RUN:+-run "$RUN"} "$package"
done
if [ -n "$areas" ]; then
	run env E2E_SHARE=areas make --no-print-directory e2e
elif [ ${#packages[@]} = 0 ]; then
	run make --no-print-directory e2e "RUN=$RUN"
fi
for command in "${failed[@]}"; do echo "stress: failed: $command"; done
echo "stress: ${#failed[@]} failed"
[ ${#failed[@]} = 0 ]
