# What the demos have in common; they read this file.
say() { printf '\n# %s\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@"; }

# linux ends a demo where its cluster cannot run.
linux() {
	if [ "$(uname)" != Linux ] || [ "$(id -u)" != 0 ]; then
		echo "make $1: the cluster's node is made of Linux namespaces: run this as root on Linux" >&2
		exit 1
	fi
}

# await runs a command until it succeeds, for so many seconds, else it says what failed and what to check.
await() {
	local deadline=$((SECONDS + $2))
	until "${@:3}"; do
		((SECONDS < deadline)) || { echo "demo: after $2 s $1" >&2; exit 1; }
		sleep 0.2
	done
}
