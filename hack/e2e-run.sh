#!/usr/bin/env bash
# Runs compiled tests in their folder, where they read files, and prints their output: e2e-run.sh NAME FOLDER PROGRAM [FLAG]... hack/e2e.sh
# and hack/e2e-group.sh use it. Environment:
#   VERDICT_DIR  folder of NAME.json, to which the events of test2json are appended
#   E2E_RETRY    if set, hack/verdict runs a failed test once more, if allowed
#   E2E_RAN      file to which the names of tests that ran are appended
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1 package=github.com/prism-gpu/prism/$2 folder=$2 program=("$PWD/$3" -test.paniconexit0 "${@:4}")
if [ -n "${E2E_RETRY:-}" ]; then
	hack/verdict.sh binary --name "$name" --package "$package" --dir "$folder" --format standard-json -- "${program[@]}"
else
	(cd "$folder" && go tool test2json -t -p "$package" "${program[@]}" -test.v=test2json) | tee -a "$VERDICT_DIR/$name.json"
fi | bin/e2e show --ran "${E2E_RAN:-}"
