#!/usr/bin/env bash
# Nsight Systems with programs that were built with a sanitizer.
#
# nsys loads its libraries into the program by LD_PRELOAD. Seen with nsys 2022.4.2 (Debian 12) and gcc 12, on a program that allocates, prints,
# frees and exits with 3:
#   - -fsanitize=address, shared runtime: the program does not start ("ASan runtime does not come first in initial library list");
#   - -fsanitize=leak: it runs, and exits with 23, as a library of nsys has leaked;
#   - -fsanitize=undefined, or none: as without nsys.
# nsys itself does not report it, and exits with the program's exit code.
# Needs Debian 12, and gcc with its sanitizers; downloads nsys from the component non-free.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mirror=$(apt-get indextargets --format '$(LABEL) $(COMPONENT) $(SITE)' 'Created-By: Packages' | awk '$1 == "Debian" && $2 == "main" { print $3; exit }')
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm non-free" >sources.list
mkdir -p lists/partial cache/archives/partial root
own=(-q -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
apt-get "${own[@]}" update >/dev/null
apt-get "${own[@]}" download nsight-systems=2022.4.2.1~11.8.0-5~deb12u1 nsight-systems-target=2022.4.2.1~11.8.0-5~deb12u1 >/dev/null
for package in ./*.deb; do dpkg -x "$package" root; done
nsys=$(readlink -f root/usr/lib/nsight-systems/target-linux-x64)/nsys
"$nsys" --version
gcc --version | head -1

cat >program.c <<'PROGRAM'
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
	char *text = malloc(16);
	snprintf(text, 16, "%s", "ran");
	puts(text);
	free(text);
	return 3;
}
PROGRAM
fails() { echo "changed: $1" && exit 1; }

# code prints the exit code of a command, whose output goes to a file.
code() {
	local status=0
	"$@" >output 2>&1 || status=$?
	echo "$status"
}
for sanitizer in none undefined leak address; do
	flags=()
	[ "$sanitizer" = none ] || flags=(-fsanitize="$sanitizer")
	gcc "${flags[@]}" -o "$sanitizer" program.c
	alone=$(code "./$sanitizer")
	beside=$(code "$nsys" profile --trace osrt --sample none --cpuctxsw none --wait primary --output "$work/report-$sanitizer" "./$sanitizer")
	said=$(grep -m1 -oE 'ASan runtime does not come first|LeakSanitizer: detected memory leaks' output || true)
	echo "$sanitizer: exits with $alone alone, $beside below nsys${said:+; \"$said\"}"
	case $sanitizer in
	address) expected="3 1 ASan runtime does not come first" ;;
	leak) expected="3 23 LeakSanitizer: detected memory leaks" ;;
	*) expected="3 3 " ;;
	esac
	[ "$alone $beside $said" = "$expected" ] || fails "$sanitizer"
done
echo "as stated"
