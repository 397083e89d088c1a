#!/usr/bin/env bash
# Recordings of Nsight Systems that commands start and stop: their exit codes do not say what was recorded, or where it is.
#
# Seen with nsys 2022.4.2 (Debian 12), with a program that "nsys launch --session-new=ours" has started:
#   - "start" with the name of an existing file, or in a folder that does not exist, exits with 0, and so does "stop". "stop" prints that
#     the file cannot be created; the report is in TMPDIR under another name.
#   - "cancel" is in the list of commands, prints that it is not implemented, and exits with 1. The recording goes on.
#   - "start" for a session that nobody has launched exits with 0, and leaves a session that records no program.
# Needs Debian 12; downloads nsys from the component non-free.
set -euo pipefail
work=$(mktemp -d)
nsys=
ended() {
	[ -z "$nsys" ] || for session in ours nobody; do "$nsys" shutdown --session="$session" --kill=sigkill >/dev/null 2>&1 || true; done
	rm -rf "$work"
}
trap ended EXIT
cd "$work"
mirror=$(apt-get indextargets --format '$(LABEL) $(COMPONENT) $(SITE)' 'Created-By: Packages' | awk '$1 == "Debian" && $2 == "main" { print $3; exit }')
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm non-free" >sources.list
mkdir -p lists/partial cache/archives/partial root tmp
own=(-q -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
apt-get "${own[@]}" update >/dev/null
apt-get "${own[@]}" download nsight-systems=2022.4.2.1~11.8.0-5~deb12u1 nsight-systems-target=2022.4.2.1~11.8.0-5~deb12u1 >/dev/null
for package in ./*.deb; do dpkg -x "$package" root; done
nsys=$(readlink -f root/usr/lib/nsight-systems/target-linux-x64)/nsys
"$nsys" --version
export TMPDIR=$work/tmp

# check runs a command of nsys, and compares its exit code, and its output with a text.
check() {
	local expected=$1 text=$2 status=0
	shift 2
	"$nsys" "$@" >output 2>&1 || status=$?
	echo "$*: exits with $status${text:+; \"$(grep -m1 -oF "$text" output || true)\"}"
	if [ "$status" != "$expected" ] || { [ -n "$text" ] && ! grep -qF "$text" output; }; then
		echo "changed: $*"
		exit 1
	fi
}
reports() { find tmp -name '*.nsys-rep' -o -name '*.qdstrm' | wc -l; }
state() { "$nsys" sessions list | awk -v name="$1" '$NF == name { print $(NF - 2) }'; }

"$nsys" launch --session-new=ours --trace=osrt sleep 600 >launch.log 2>&1 &
for _ in $(seq 300); do [ "$(state ours)" = Launched ] && break || sleep 0.1; done
quiet=(--sample=none --cpuctxsw=none)
touch taken.nsys-rep taken.qdstrm
check 0 "" start --session=ours "${quiet[@]}" --output="$work/taken"
check 0 "File exists" stop --session=ours
[ "$(reports)" = 1 ] && [ ! -s taken.nsys-rep ] && [ ! -s taken.qdstrm ] || { echo "changed: where the first report is" && exit 1; }
check 0 "" start --session=ours "${quiet[@]}" --output="$work/missing/report"
check 0 "No such file or directory" stop --session=ours
[ "$(reports)" = 2 ] && [ ! -e missing ] || { echo "changed: where the second report is" && exit 1; }
echo "both reports are in TMPDIR"

"$nsys" --help 2>&1 | grep -E '^[[:space:]]*cancel' || { echo "changed: the list of commands" && exit 1; }
check 0 "" start --session=ours "${quiet[@]}" --output="$work/report"
check 1 "cancel is not implemented" cancel --session=ours
check 0 "" stop --session=ours

check 0 "" start --session=nobody "${quiet[@]}" --output="$work/nobody"
echo "the session that nobody launched: $(state nobody)"
[ "$(state nobody)" = Started ] || { echo "changed: the session" && exit 1; }
echo "as stated"
