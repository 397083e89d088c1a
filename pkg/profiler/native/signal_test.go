package native

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// counts is a process that answers each signal of a number with a dot, and prints their count at a signal of another number. prism-run has
// passed on all earlier signals when it passes on the higher number.
const counts = `import signal, sys
number, last = int(sys.argv[1]), int(sys.argv[2])
signal.pthread_sigmask(signal.SIG_BLOCK, {number, last})
count = 0
sys.stdout.write("."); sys.stdout.flush()
while signal.sigwait({number, last}) == number:
	count += 1
	sys.stdout.write("."); sys.stdout.flush()
while signal.sigtimedwait({number}, 0): count += 1
print(count)`

// sends starts a process in its own session, and sends it signals, each after the previous one was received.
const sends = `import os, signal, subprocess, sys
number, last = int(sys.argv[1]), int(sys.argv[2])
p = subprocess.Popen(["/usr/bin/python3", "/run/work/profiled.py", *sys.argv[1:]], start_new_session=True, stdout=subprocess.PIPE)
p.stdout.read(1)
for i in range(1000):
	SEND
	p.stdout.read(1)
os.kill(p.pid, last)
print(p.stdout.read().decode().strip(".\n"), p.wait())`

// TestRun_SignalToGroupOrProcess_ReceivedOnce: the kernel delivers a signal to the group to the process itself, and prism-run passes on a
// signal to the process id.
func TestRun_SignalToGroupOrProcess_ReceivedOnce(t *testing.T) {
	t.Parallel()
	const group, process = "os.killpg(p.pid, number)", "os.kill(p.pid, number)"
	// The second signal is queued. The first arrives once if prism-run has not yet received the signal to the group when the signal to the
	// id arrives.
	plain, queued := []string{"10", "12"}, []string{"40", "50"}
	for name, c := range map[string]struct {
		send    string
		numbers []string
	}{
		"group": {group, plain}, "process": {process, plain}, "both in turn": {group + " if i % 2 else " + process, queued},
		"group that was stopped": {"i % 100 == 0 and (os.killpg(p.pid, signal.SIGSTOP), os.kill(p.pid, signal.SIGCONT)); " + group, plain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, change := range kinds {
				box := newContainer(t, change)
				box.python(t, counts)
				code, output := box.run(t, append(box.outerPython(t, strings.Replace(sends, "SEND", c.send, 1)), c.numbers...)...)
				assert.Zero(t, code)
				assert.Equal(t, "1000 0\n", output, kind)
				box.over(t, kind)
			}
		})
	}
}

// TestRun_TerminalHangsUp_ProcessNotified: the kernel only signals the leader of the session, which is prism-run.
func TestRun_TerminalHangsUp_ProcessNotified(t *testing.T) {
	t.Parallel()
	c := newContainer(t, nil)
	c.script(t, `trap 'echo hangup >/run/work/received; exit 3' HUP
echo up >/run/work/up
while :; do sleep 0.01; done`)
	code, output := c.run(t, c.outerPython(t, `import os, pty, signal, time
signal.signal(signal.SIGHUP, signal.SIG_DFL) # ignored where the tests run under nohup
pid, master = pty.fork()
if pid == 0: os.execv("/bin/sh", ["sh", "/run/work/profiled.sh"])
while not os.path.exists("/run/work/up"): time.sleep(0.01)
os.close(master)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))`)...)
	assert.Zero(t, code)
	assert.Equal(t, "3\n", output)
	received, err := os.ReadFile(filepath.Join(c.Work, "received"))
	require.NoError(t, err)
	assert.Equal(t, "hangup\n", string(received))
}
