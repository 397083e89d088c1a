#!/bin/sh
# Builds the library and the programs of the profiler that run inside containers: build.sh OUTPUT_FOLDER
# CC is the compiler. The library uses no C library, the program is linked statically.
set -eu

out=${1:?usage: build.sh OUTPUT_FOLDER}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")"
: "${CC:=gcc}"
# Processes that the processor guards against forged jumps stay guarded only where each library takes part.
case $("$CC" -dumpmachine) in
x86_64-*) guard=-fcf-protection=full ;;
aarch64-*) guard=-mbranch-protection=standard ;;
*) echo "build.sh: unsupported machine $("$CC" -dumpmachine); supported values: x86_64, aarch64" >&2 && exit 1 ;;
esac
common="$guard -std=gnu11 -Wall -Wextra -Werror -fno-stack-protector -fno-asynchronous-unwind-tables -fno-ident"

# Whatever the compiler's defaults are, nothing may be left for the loader to resolve. Each process maps the file: two segments take less
# time than five.
# shellcheck disable=SC2086 # a list
"$CC" $common -Os -fPIC -ffreestanding -fvisibility=hidden -nostdlib -nostartfiles -shared \
	-Wl,-z,defs,-z,now,-z,norelro,-z,noseparate-code,-z,noexecstack,--build-id=none,--hash-style=gnu,-s \
	-o "$out/libprism-inject.so" inject/inject.c

# shellcheck disable=SC2086 # a list
"$CC" $common -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -Os -ffunction-sections -fdata-sections -static \
	-Wl,--gc-sections,-z,relro,-z,noexecstack,--build-id=none,-s \
	-o "$out/prism-run" run/*.c

# It is executed by the administrator's image, whose C library may be an old one.
# shellcheck disable=SC2086 # a list
"$CC" $common -Os -nostartfiles -Wl,-z,relro,-z,now,-z,noexecstack,--build-id=none,--hash-style=gnu,-s \
	-o "$out/prism-proof" proof/proof.c
