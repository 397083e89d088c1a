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

// Syscall is one call that a traced process began.
type Syscall struct {
	Name string
	// Arguments are as strace prints them, with the paths behind file descriptors.
	Arguments string
	Began     time.Time
}

// traced are the ways to stable storage and to another program.
const traced = "fsync,fdatasync,sync,syncfs,sync_file_range,msync,execve,execveat"

// Trace runs do while the process with all its threads and children is traced, and returns the calls it made.
func Trace(ctx context.Context, pid int, do func() error) (calls []Syscall, err error) {
	dir, err := os.MkdirTemp("", "bench-strace-")
	if err != nil {
		return nil, fmt.Errorf("tracing process %d: %w", pid, err)
	}
	defer os.RemoveAll(dir)
	output := filepath.Join(dir, "calls")
	tracer := exec.CommandContext(ctx, "strace", "-f", "-y", "-ttt", "-e", "trace="+traced, "-e", "signal=none",
		"-o", output, "-p", strconv.Itoa(pid))
	told, err := tracer.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("tracing process %d: %w", pid, err)
	}
	if err := tracer.Start(); err != nil {
		return nil, fmt.Errorf("tracing process %d: %w; install strace", pid, err)
	}
	lines := bufio.NewReader(told)
	first, attachErr := lines.ReadString('\n')
	if attachErr != nil || !strings.Contains(first, "attached") {
		_ = tracer.Process.Kill()
		_ = tracer.Wait()
		return nil, fmt.Errorf("tracing process %d: %s", pid, strings.TrimSpace(first))
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	doErr := do()
	// Interrupted, strace detaches and leaves the process alone.
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

// traceLine is "<pid> <seconds> <name>(<arguments>": the end of a call, which may come in a line of its own, does not matter.
var traceLine = regexp.MustCompile(`^\d+\s+(\d+\.\d+) (\w+)\((.*)$`)

func parseTrace(text io.Reader) ([]Syscall, error) {
	var calls []Syscall
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		m := traceLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		seconds, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return nil, fmt.Errorf("reading what strace wrote: %w", err)
		}
		calls = append(calls, Syscall{Name: m[2], Arguments: m[3], Began: time.UnixMicro(int64(seconds * 1e6))})
	}
	return calls, lines.Err()
}
