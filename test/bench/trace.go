package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Syscall is one system call that a traced process began.
type Syscall struct {
	Name string
	// Arguments are printed as by strace, with the paths behind file descriptors, and with the rest of the line.
	Arguments string
	// Result is the return value; -1 also for a call that never returned.
	Result int
	Began  time.Time
}

// The traced calls: all that write to stable storage or execute a program, or all that use files. A question mark precedes a call that some
// architectures lack.
const (
	tracedSyncs = "fsync,fdatasync,sync,syncfs,sync_file_range,msync,execve,execveat"
	tracedFiles = "?open,openat,?openat2,?creat,read,readv,pread64,preadv,?preadv2,write,writev,pwrite64,pwritev,?pwritev2," +
		"getdents64,?getdents,truncate,ftruncate,?rename,renameat,renameat2,?link,linkat,?symlink,symlinkat,?unlink,unlinkat," +
		"?mkdir,mkdirat,?rmdir," + tracedSyncs
)

// Trace calls do while it traces the process with all its threads and children. It returns the named calls that the process began
// meanwhile.
func Trace(ctx context.Context, pid int, names string, do func() error) (calls []Syscall, err error) {
	dir, err := os.MkdirTemp("", "bench-strace-")
	if err != nil {
		return nil, fmt.Errorf("tracing process %d: %w", pid, err)
	}
	defer os.RemoveAll(dir)
	output := filepath.Join(dir, "calls")
	tracer := exec.CommandContext(ctx, "strace", "-f", "-y", "-ttt", "-s", "0", "-e", "trace="+names, "-e", "signal=none",
		"-o", output, "-p", strconv.Itoa(pid))
	messages, err := tracer.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("tracing process %d: %w", pid, err)
	}
	if err := tracer.Start(); err != nil {
		return nil, fmt.Errorf("tracing process %d: %w; install strace", pid, err)
	}
	lines := bufio.NewReader(messages)
	first, attachErr := lines.ReadString('\n')
	if attachErr != nil || !strings.Contains(first, "attached") {
		_ = tracer.Process.Kill()
		_ = tracer.Wait()
		return nil, fmt.Errorf("tracing process %d: %s", pid, strings.TrimSpace(first))
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	doErr := do()
	// strace detaches when it is interrupted, and the process goes on.
	_ = tracer.Process.Signal(syscall.SIGINT)
	_ = tracer.Wait()
	if doErr != nil {
		return nil, doErr
	}
	text, err := os.Open(output)
	if err != nil {
		return nil, fmt.Errorf("tracing process %d: %w", pid, err)
	}
	defer text.Close()
	return parseTrace(text)
}

// The lines of a trace: "<pid> <seconds> <name>(<arguments>) = <result>", or the same in two halves, of which the second is "<pid>
// <seconds> <... <name> resumed><arguments>) = <result>".
var (
	traceBegun   = regexp.MustCompile(`^(\d+)\s+(\d+\.\d+) (\w+)\((.*)$`)
	traceResumed = regexp.MustCompile(`^(\d+)\s+\d+\.\d+ <\.\.\. \w+ resumed>(.*)$`)
	traceResult  = regexp.MustCompile(`.*\)\s+= (-?\d+)`)
)

func parseTrace(text io.Reader) ([]Syscall, error) {
	var calls []Syscall
	open := map[string]int{} // by thread, its unfinished call
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		if m := traceResumed.FindStringSubmatch(lines.Text()); m != nil {
			if i, known := open[m[1]]; known {
				calls[i].Arguments += m[2]
				calls[i].Result = resultOf(m[2])
				delete(open, m[1])
			}
			continue
		}
		m := traceBegun.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		seconds, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, fmt.Errorf("reading the output of strace: %w", err)
		}
		arguments, unfinished := strings.CutSuffix(m[4], " <unfinished ...>")
		if unfinished {
			open[m[1]] = len(calls)
		}
		calls = append(calls, Syscall{
			Name: m[3], Arguments: arguments, Result: resultOf(arguments), Began: time.UnixMicro(int64(seconds * 1e6)),
		})
	}
	return calls, lines.Err()
}

func resultOf(text string) int {
	m := traceResult.FindStringSubmatch(text)
	if m == nil {
		return -1
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return -1
	}
	return n
}
