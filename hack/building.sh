# Sourced by scripts that build. building WHAT SECONDS COMMAND... runs the command, and first prints the duration of its last run on this
# machine, or its approximate duration with empty caches on two processors.
building() {
	local what=$1 expected="about $2 s on two processors" begin=$SECONDS
	local last="${XDG_CACHE_HOME:-$HOME/.cache}/prism/durations/${what// /-}"
	[ ! -s "$last" ] || expected="$(cat "$last") s the last time"
	echo "building $what: $expected" >&2
	"${@:3}"
	mkdir -p "$(dirname "$last")"
	echo $((SECONDS - begin)) >"$last"
}
