#!/usr/bin/env bash
# Fuzzes every target of the module one after another, and continues after a failure. A failing input is stored in that package's
# testdata/fuzz, where every later `go test` tries it again: fix the code and commit the input. Environment:
#   FUZZTIME  duration for each target (10s), or number of inputs (100000x)
#   RUN       regular expression that selects targets
#   CASES     number of random patterns and texts that pkg/pattern compares in Go, in C and in C for arm64 (1000000); only without RUN
set -euo pipefail
cd "$(dirname "$0")/.."
hack/packages.sh cc
time=${FUZZTIME:-10s}
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# Go minimizes not only failing inputs, but also inputs that reach new code, and would spend most of the time on that.
smaller=1000x
targets=0 failed=0
while IFS=: read -r file target; do
	package=./$(dirname "$file")
	targets=$((targets + 1))
	if ! go test -ldflags=-extldflags=-Wl,-z,lazy -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime "$smaller" "$package" >"$out" 2>&1 &&
		# A timeout in the middle of an input is not a failure of the input.
		{ grep -q 'Failing input written\|failure while testing seed' "$out" || ! grep -q 'context deadline exceeded' "$out"; }; then
		failed=$((failed + 1))
		cat "$out"
		printf 'fuzz: %s %s: FAILED\n' "$package" "$target"
		continue
	fi
	# Without such a line the time expired before the known inputs were tried.
	last=$(grep -o 'execs: .*' "$out" | tail -1 || true)
	tried=$(sed -n 's/^execs: \([0-9]*\).*/\1/p' <<<"$last") kept=$(sed -n 's/.*total: \([0-9]*\).*/\1/p' <<<"$last")
	printf 'fuzz: %s %s: %s inputs, %s interesting\n' "$package" "$target" "${tried:-0}" "${kept:-0}"
done < <(git ls-files '*_test.go' | grep -v ^hack/ | xargs grep -Eo '^func Fuzz[A-Za-z0-9_]+' | sed 's/func //' | { grep -E "${RUN:-}" || true; })

if [ -z "${RUN:-}" ]; then
	eval "$(hack/arm64.sh)"
	export PATTERN_CASES=${CASES:-1000000} PATTERN_SEED=${PATTERN_SEED:-$RANDOM}
	printf 'fuzz: %d cases of patterns with PATTERN_SEED=%d, on x86_64%s\n' "$PATTERN_CASES" "$PATTERN_SEED" "${PATTERN_ARM64_CC:+ and arm64}"
	targets=$((targets + 1))
	go test -timeout 60m -run 'RandomPatterns|Native|CategoryCuts' ./pkg/pattern || failed=$((failed + 1))
fi

printf 'fuzz: %d targets, %s each, %d failed\n' "$targets" "$time" "$failed"
[ "$targets" -gt 0 ] && [ "$failed" = 0 ]
