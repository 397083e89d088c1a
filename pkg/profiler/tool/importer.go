package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unprivileged is the user id of the importer. It owns no files.
const unprivileged = 65534

// Importer runs the version's importer for files that containers wrote.
type Importer struct {
	Source
	// Self is the path of this program, which can be started as Confine.
	Self string
	// Work is a directory of this process only.
	Work string
	// Memory is the maximum number of bytes of memory of the importer; Deadline is its timeout.
	Memory   int64
	Deadline time.Duration
	// Space is the maximum number of bytes in Work of one import; 0 is unlimited.
	Space int64
}

// ConfineCommand is the argument with which this program runs Confine.
const ConfineCommand = "confined"

// An importer may write growth times the size of the raw file, plus spare. A report is usually smaller, except for a small file.
const (
	growth = 8
	spare  = 64 << 20
)

// madeFile is the output file of the importer.
const madeFile = "report.nsys-rep"

// maxOutput is the number of bytes that are kept of an importer's output.
const maxOutput = 4 << 10

// workPrefix is the prefix of the names of imports in Own.
const workPrefix = "import-"

// ownFolder is the directory of this program in Work.
const ownFolder = "own"

// Own creates and returns a directory in Work in which only this program creates entries; the importer can only pass through it. Work may
// be a volume in which every user can rename entries: a link instead of a directory would lead this program, as root, out of it.
func (i Importer) Own() (string, error) {
	dir := filepath.Join(i.Work, ownFolder)
	if err := os.Chmod(i.Work, 0o755); err != nil {
		return "", fmt.Errorf("preparing the work directory: %w", err)
	}
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("creating the directory of imports: %w", err)
	}
	var of unix.Stat_t
	if err := unix.Lstat(dir, &of); err != nil {
		return "", &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if of.Mode&unix.S_IFMT != unix.S_IFDIR || of.Uid != uint32(os.Geteuid()) { //nolint:gosec // ids have 32 bits
		return "", fmt.Errorf("%s must be a directory owned by this program, got mode %o, user %d", dir, of.Mode, of.Uid)
	}
	return dir, os.Chmod(dir, 0o711)
}

// Clean removes leftovers of imports that were interrupted.
func (i Importer) Clean() error {
	own, err := i.Own()
	if err != nil {
		return err
	}
	left, err := filepath.Glob(filepath.Join(own, workPrefix+"*"))
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// Import converts a raw file to a report. The error contains the importer's output. The importer appends to the file that it imports, so it
// gets a copy, and the recording stays unchanged for another try.
func (i Importer) Import(ctx context.Context, raw, report string) error {
	program, err := i.find(hosts...)
	if err != nil {
		return err
	}
	own, err := i.Own()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(own, workPrefix)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// Opened before the importer runs: the results are read from this directory even if the importer renames it.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	in, out := filepath.Join(dir, "report.qdstrm"), filepath.Join(dir, madeFile)
	size, err := i.takeOver(raw, in)
	if err != nil {
		return err
	}
	limit := size*growth + spare
	if err := errors.Join(os.Chown(in, unprivileged, unprivileged), os.Chown(dir, unprivileged, unprivileged)); err != nil {
		return err
	}
	if err := i.run(ctx, root, limit, filepath.Join(program, importerProgram), "-i", in, "-o", out); err != nil {
		return err
	}
	return handOver(root, report, limit)
}

// run runs a program of the image as that user, without network, with limits. It is the first process of a PID namespace: processes that it
// starts exit with it, even in their own sessions.
func (i Importer) run(ctx context.Context, root *os.Root, fileSize int64, program string, args ...string) error {
	ctx, stop := context.WithTimeout(ctx, i.Deadline)
	defer stop()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go i.watch(ctx, root, end)
	dir := root.Name()
	limits := []string{ConfineCommand, strconv.FormatInt(i.Memory, 10), strconv.FormatInt(fileSize, 10), program}
	command := exec.CommandContext(ctx, i.Self, append(limits, args...)...)
	command.Dir = dir
	command.Env = []string{"HOME=" + dir, "TMPDIR=" + dir, "NSYS_TMPDIR=" + dir, "PATH=/usr/bin:/bin", "LC_ALL=C"}
	command.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
		Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged},
	}
	output := &last{}
	command.Stdout, command.Stderr = output, output
	command.WaitDelay = time.Second
	err := command.Run()
	switch {
	case errors.Is(context.Cause(ctx), errSpace):
		return fmt.Errorf("%s: %w: %d bytes", filepath.Base(program), errSpace, i.Space)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%s took longer than %v: %s", filepath.Base(program), i.Deadline, tail(output.bytes))
	case err != nil:
		return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, tail(output.bytes))
	}
	return nil
}

// threadStack is the stack size of each thread of an importer. It starts one thread for each processor of the machine, regardless of the
// container's limit, and with the usual 8 MiB the stacks would need most of the memory on large machines.
const threadStack = 2 << 20

// Confine runs in the process that becomes the importer: it sets limits and executes the arguments. It only returns errors.
func Confine(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("usage: %s MEMORY FILESIZE PROGRAM [ARGUMENT...]", ConfineCommand)
	}
	// Not the address space: the allocator reserves some for each of the threads and does not use it.
	for i, what := range []int{unix.RLIMIT_DATA, unix.RLIMIT_FSIZE} {
		limit, err := strconv.ParseUint(args[i], 10, 63)
		if err != nil {
			return err
		}
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("setrlimit: %w", err)
		}
	}
	for what, limit := range map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_STACK: threadStack} {
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("setrlimit: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	return unix.Exec(args[2], args[2:], os.Environ())
}

// takeOver copies a regular file with one link. The source belongs to this service, in a directory that containers cannot reach.
func (i Importer) takeOver(from, to string) (int64, error) {
	source, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is not a regular file", from)
	}
	if err := i.fits(info.Size()); err != nil {
		return 0, err
	}
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(target, io.LimitReader(source, info.Size()))
	return info.Size(), errors.Join(err, target.Close())
}

// handOver copies the output of the importer, which is as untrusted as its input, and renames it to its final name.
func handOver(from *os.Root, to string, limit int64) error {
	source, err := from.OpenFile(madeFile, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("the importer wrote no report: %w", err)
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() == 0 || info.Size() > limit {
		return fmt.Errorf("the importer wrote a report of %d bytes, mode %v: must be a regular file of 1 to %d bytes", info.Size(), info.Mode(), limit)
	}
	tmp := filepath.Join(filepath.Dir(to), unfinishedPrefix+filepath.Base(to))
	target, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, io.LimitReader(source, info.Size()))
	if err = errors.Join(err, target.Close()); err == nil {
		err = os.Rename(tmp, to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

// last keeps the end of the written bytes.
type last struct{ bytes []byte }

// Write never fails.
func (l *last) Write(p []byte) (int, error) {
	l.bytes = append(l.bytes, p...)
	if more := len(l.bytes) - maxOutput; more > 0 {
		l.bytes = append(l.bytes[:0], l.bytes[more:]...)
	}
	return len(p), nil
}

// tail returns the end of a program's output as one printable line. A progress bar is reduced to its last state.
func tail(output []byte) string {
	text := strings.TrimSpace(string(output[max(0, len(output)-maxOutput):]))
	var lines []string
	for line := range strings.Lines(text) {
		if at := strings.LastIndexByte(strings.TrimRight(line, "\r\n"), '\r'); at >= 0 {
			line = line[at+1:]
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return '?'
		}
		return r
	}, strings.Join(lines, " | "))
}
