package v1alpha1

// DefaultExcludes are the base names of programs that are not profiled with match.useDefaultExcludes: shells, programs that start other
// programs, and small tools.
var DefaultExcludes = []string{
	"ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "mksh", "rbash", "sh", "tcsh", "zsh",
	"catatonit", "chroot", "dumb-init", "env", "gosu", "ionice", "nice", "nohup", "numactl", "s6-svscan", "setpriv", "setsid", "stdbuf",
	"su", "su-exec", "sudo", "taskset", "time", "timeout", "tini", "tini-static", "unshare", "xargs",
	"awk", "base64", "basename", "cat", "chmod", "chown", "cmp", "cp", "cut", "date", "dd", "df", "diff", "dirname", "du", "echo", "egrep",
	"expr", "false", "fgrep", "file", "find", "gawk", "getconf", "getent", "git", "grep", "groups", "gunzip", "gzip", "head", "hostname",
	"id", "install", "ip", "jq", "kill", "ldconfig", "ldconfig.real", "ldd", "less", "ln", "locale", "ls", "lsb_release", "lscpu", "mawk",
	"md5sum", "mkdir", "mktemp", "mount", "mv", "nproc", "nvidia-smi", "od", "pgrep", "pidof", "pkill", "printf", "ps", "pwd", "readlink",
	"realpath", "rm", "rmdir", "rsync", "scp", "sed", "seq", "sha256sum", "sleep", "sort", "ssh", "stat", "stty", "sync", "tail", "tar",
	"tee", "test", "touch", "tr", "true", "tty", "umount", "uname", "uniq", "uuidgen", "wc", "wget", "which", "whoami", "curl", "xz", "yes",
	"zcat", "zstd",
}
