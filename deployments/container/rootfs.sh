#!/bin/sh
# Lays out the root filesystem of the image: rootfs.sh PROGRAMS_FOLDER ROOTFS_FOLDER
# The Dockerfile and `make image` both use it, so both images are the same. The
# C library comes from the Debian that this runs on, which is also the one that
# the programs were linked on.
set -eu

programs=${1:?usage: rootfs.sh PROGRAMS_FOLDER ROOTFS_FOLDER}
root=${2:?usage: rootfs.sh PROGRAMS_FOLDER ROOTFS_FOLDER}

if ! dpkg-query --show libc6 >/dev/null 2>&1; then
	echo "rootfs.sh: no package libc6 here; run it on Debian or build the Dockerfile" >&2
	exit 1
fi
rm -rf "$root"
mkdir -p "$root"

# As on Debian: everything is below /usr.
for dir in bin lib lib64 sbin; do
	mkdir -p "$root/usr/$dir"
	ln -s "usr/$dir" "$root/$dir"
done
# Mount points, so that a read-only root needs no writing.
mkdir -p "$root/etc" "$root/dev" "$root/host" "$root/proc" "$root/run" "$root/sys" "$root/tmp"
mkdir -p "$root/var/lib/kubelet" "$root/var/run"
chmod 1777 "$root/tmp"

# NVIDIA's library and the control daemon of MPS, which come from the host, need
# the whole C library, not only what our programs link. Character set converters are not part of it.
dpkg --listfiles libc6 | grep -E '^(/usr)?/lib(64)?/(.*/)?[^/]+\.so[.0-9]*$|/copyright$' | grep -v /gconv/ |
	while read -r file; do
		target="$root/usr/${file#/}"
		[ "${file#/usr/}" = "$file" ] || target="$root$file"
		mkdir -p "$(dirname "$target")"
		cp --no-dereference --preserve=mode,timestamps "$file" "$target"
	done

for program in prism-kubelet-plugin prism-controller prism-exporter prism-mpsd prism-hook prism-tool prism-validate prism-run prism-proof libprism-inject.so nvidia-cdi-hook; do
	install -m 0755 "$programs/$program" "$root/usr/bin/$program"
done

# Nothing may be missing that the loader needs; found now, not on a node. Static
# programs do not name the loader at their beginning.
loader=$(find "$root/usr/lib64" "$root/usr/lib" -name 'ld-linux*' -type f | head -n 1)
for program in "$root"/usr/bin/*; do
	head -c 4096 "$program" | grep -q ld-linux || continue
	"$loader" --inhibit-cache --library-path "$(dirname "$loader")" --list "$program" |
		awk -v root="$root" '/=>/ && index($3, root) != 1 { print "rootfs.sh: not in the image: " $0; bad = 1 } END { exit bad }' >&2
done
