"""Prints what a process was given, one fact a line, and exits with 7. What differs from run to run is left out."""
import os
import re
import resource
import sys

WANTED = {"PATH", "HOME", "HOSTNAME", "LANG", "EMPTY", "QUOTED", "RANK"}


def descriptor(number):
    try:
        target = os.readlink(f"/proc/self/fd/{number}")
        flags = re.search(r"^flags:\t(\S+)", open(f"/proc/self/fdinfo/{number}").read(), re.M)[1]
    except OSError:
        return None
    return re.sub(r"\d+", "N", target) + " " + flags


def main():
    print("arguments", sys.argv)
    print("executable", os.readlink("/proc/self/exe"), "in", os.getcwd())
    mask = os.umask(0o77)
    print("umask", oct(mask))
    print("ids", os.getresuid(), os.getresgid(), os.getgroups())
    print("session", os.getsid(0), "group", os.getpgid(0), "nice", os.nice(0))
    # Further ones are those of the library that the profiler has in the process.
    for number in range(3):
        print("file", number, descriptor(number), "terminal" if os.isatty(number) else "")
    for line in open("/proc/self/status"):
        if re.match("(Sig(Blk|Ign)|Cap|NoNewPrivs|Seccomp:|Cpus_allowed:)", line):
            print(line.strip())
    for name in ("NOFILE", "CORE", "STACK", "NPROC"):
        print("limit", name, resource.getrlimit(getattr(resource, "RLIMIT_" + name)))
    for name in sorted(WANTED & set(os.environ)):
        print("variable", name, repr(os.environ[name]))
    print("jemalloc", "libjemalloc" in open("/proc/self/maps").read())
    print("input", repr(sys.stdin.read()) if not sys.stdin.isatty() else "of a terminal")
    print("on stderr", file=sys.stderr)
    sys.exit(7)


main()
