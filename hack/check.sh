#!/usr/bin/env bash
# Format, vet, lint, import walls, generated files, the module files, and data races of the packages and their tests: every check that needs
# no cluster.
set -euo pipefail
cd "$(dirname "$0")/.."
hack/packages.sh cc

step() { printf 'check: %s\n' "$*"; }
fail() { printf 'check: %s\n' "$*" >&2; exit 1; }
linter=$(hack/golangci-lint.sh)
# The modules besides the product's.
modules=(hack/localcluster hack/verdict)
# Programs that bind NVIDIA's library must leave its symbols unresolved until they are used. Debug information is half of the cost of
# linking, and no test reads it. The tests have already been vetted.
flags=(-vet=off -timeout 30m -ldflags="-w -extldflags=-Wl,-z,lazy")
# A retry of one step counts for all.
if [ -z "${VERDICT_DIR:-}" ]; then
	VERDICT_DIR=$(mktemp -d)
	export VERDICT_DIR
	trap 'rm -rf "$VERDICT_DIR"' EXIT
fi

step format
unformatted=$(git ls-files '*.go' | xargs gofmt -l)
[ -z "$unformatted" ] || fail "run 'make fmt'; not formatted: $unformatted"

step "what is tracked"
# A built program or a dump would stay in the history.
large=$(git ls-files -z | xargs -0 sh -c 'find "$@" -maxdepth 0 -type f -size +512k' sh)
[ -z "$large" ] || fail "larger than 512 KiB: $large: remove it from the commit, or add an exception here with its reason"

step vet
go vet ./...
for module in "${modules[@]}"; do go -C "$module" vet ./...; done

step lint
"$linter" run --allow-parallel-runners ./...
for module in "${modules[@]}"; do (cd "$module" && "$linter" run --allow-parallel-runners --config "$OLDPWD/.golangci.yml" ./...); done

step "flaky tests"
# The verdict on a commit does not depend on the day.
hack/verdict.sh flaky --at "$(git log -1 --format=%cs)" test/flaky.txt

step "import walls, sizes and words"
hack/verdict.sh test --name check-walls -- "${flags[@]}" -- ./test/walls ./test/words

step races
# Go caches results: packages without changes are not run again.
hack/verdict.sh test --name check-races -- -race -short "${flags[@]}" -- ./pkg/...

step "generated files and go.mod"
before=$(git status --porcelain; git diff)
go generate ./...
go mod tidy
for module in "${modules[@]}"; do go -C "$module" mod tidy; done
[ "$before" = "$(git status --porcelain; git diff)" ] || { git diff --stat >&2; fail "generated files or go.mod are out of date: commit the changes"; }
step "passed"
