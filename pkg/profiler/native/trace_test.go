//go:build amd64

package native

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asTracer makes this program print, in a container, the system calls of the library in a program that it executes.
const asTracer = "NATIVE_TEST_TRACER"

// The system calls of the library, by their number on amd64.
var callNames = map[uint64]string{0: "read", 3: "close", 9: "mmap", 11: "munmap", 39: "getpid", 59: "execve", 257: "openat", 262: "newfstatat", 267: "readlinkat"}

// TestInject_NoMatch_SystemCalls: each process of a container makes these system calls, whether it is profiled or not.
func TestInject_NoMatch_SystemCalls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plan   func(path string) error
		marked string
		calls  string
	}{
		"a plan of another command line": {calls: "openat read close"},
		"a large plan":                   {plan: grow, calls: "openat read newfstatat mmap munmap close"},
		"no plan":                        {plan: os.Remove, calls: "openat"},
		"below a profiled process":       {marked: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := newContainer(t, nil)
			if c.plan != nil {
				require.NoError(t, c.plan(filepath.Join(box.Plan, "match")))
			}
			own, err := os.ReadFile(os.Args[0])
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(box.Work, "tracer"), own, 0o755))
			command := box.command(t, "/run/work/tracer")
			command.Env = append(command.Env, asTracer+"=1")
			if c.marked != "" {
				command.Env = append(command.Env, "PRISM_PROFILED="+c.marked)
			}
			output, err := command.CombinedOutput()
			require.NoError(t, err, string(output))
			assert.Equal(t, c.calls, strings.TrimSpace(string(output)))
		})
	}
}

// grow makes a file too large to be read at once.
func grow(path string) error { return os.Truncate(path, 64<<10) }

// traceLibrary prints the system calls of the library in /bin/true.
func traceLibrary() error {
	runtime.LockOSThread()
	process, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		return err
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(process.Pid, &status, 0, nil); err != nil {
		return err
	}
	var names []string
	for entry := true; ; entry = !entry {
		if err := syscall.PtraceSyscall(process.Pid, 0); err != nil {
			return err
		}
		if _, err := syscall.Wait4(process.Pid, &status, 0, nil); err != nil {
			return err
		}
		if status.Exited() || status.Signaled() {
			break
		}
		var registers syscall.PtraceRegs
		if err := syscall.PtraceGetRegs(process.Pid, &registers); err != nil {
			return err
		}
		if entry && ofLibrary(process.Pid, registers.Rip) {
			names = append(names, callNames[registers.Orig_rax])
		}
	}
	fmt.Println(strings.Join(names, " "))
	return nil
}

// ofLibrary reports whether an address is in the library's code.
func ofLibrary(pid int, address uint64) bool {
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	for line := range strings.Lines(string(maps)) {
		first, rest, _ := strings.Cut(line, "-")
		last, _, _ := strings.Cut(rest, " ")
		from, _ := strconv.ParseUint(first, 16, 64)
		to, _ := strconv.ParseUint(last, 16, 64)
		if strings.HasSuffix(strings.TrimSpace(line), "/libprism-inject.so") && from <= address && address < to {
			return true
		}
	}
	return false
}
