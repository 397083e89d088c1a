#!/usr/bin/env bash
# Builds and runs hack/verdict, which runs the steps of CI and tests; without arguments it prints its usage. VERDICT_PROGRAM is the program
# of a step that has already built it.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${VERDICT_PROGRAM:-}" ]; then
	VERDICT_PROGRAM=$PWD/bin/verdict
	mkdir -p bin
	CGO_ENABLED=0 go -C hack/verdict build -o "$VERDICT_PROGRAM" .
fi
exec "$VERDICT_PROGRAM" "$@"
