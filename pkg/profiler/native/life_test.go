package native

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/profiler/runplan"
)

// reparented prints which program becomes the parent of a process whose parent exits, while the process continues.
const reparented = `import os
r, w = os.pipe()
def adopted():
	parent = os.getpid()
	if os.fork(): os._exit(0)
	while os.getppid() == parent: pass
	os.write(w, open(f"/proc/{os.getppid()}/comm", "rb").read())
	os._exit(0)
if not os.fork(): adopted()
print(os.read(r, 99).decode().strip())`

// signalled prints the signal that the process receives at its parent's death.
const signalled = `import ctypes
number = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(number))
print(number.value)`

// waits makes the process become a user, and wait.
const waits = `import os, sys, time
if sys.argv[1] != "0": os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
print(os.getpid(), flush=True)
while True: time.sleep(1)`

// kills kills the process that the container started, and prints whether the original program is gone.
const kills = `import os, subprocess, sys
p = subprocess.Popen(["/usr/bin/python3", "/run/work/profiled.py", *sys.argv[1:]], stdout=subprocess.PIPE)
pid = int(p.stdout.readline())
p.kill(); p.wait()
if os.path.exists(f"/proc/{pid}") and sys.argv[1] == "0":
	os.waitpid(pid, 0) # the first process of the container has it now
alive = os.path.exists(f"/proc/{pid}")
print("lives on" if alive else "gone")
if alive: os.kill(pid, 9)`

// TestRun_Life_DiffersAsDocumented: docs/profiling-details.md lists the differences for a profiled process; these are its lines about
// parents and about the order of exits.
func TestRun_Life_DiffersAsDocumented(t *testing.T) {
	t.Parallel()
	ends := func(p *runplan.Plan) { p.Env = []string{"FAKE=exit"} }
	for name, c := range map[string]struct {
		plan              func(*runplan.Plan)
		process           string
		outer             string
		args              []string
		profiled, without string
	}{
		"parent exits, recorded":    {process: reparented, profiled: "prism-run\n", without: "python3\n"},
		"parent exits, waiting":     {plan: manually, process: reparented, profiled: "prism-run\n", without: "python3\n"},
		"parent exits, no profiler": {plan: ends, process: reparented, profiled: "python3\n", without: "python3\n"},
		"signal at parent's death":  {process: signalled, profiled: "9\n", without: "0\n"},
		"killed, waiting":           {plan: manually, process: waits, outer: kills, args: []string{"0"}, profiled: "gone\n", without: "gone\n"},
		"killed":                    {process: waits, outer: kills, args: []string{"0"}, profiled: "gone\n", without: "gone\n"},
		"killed as another user is": {process: waits, outer: kills, args: []string{"1234"}, profiled: "lives on\n", without: "gone\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for library, want := range map[bool]string{true: c.profiled, false: c.without} {
				box := newContainer(t, c.plan)
				box.NoLibrary = !library
				outer := c.outer
				if outer == "" {
					outer = `import subprocess; subprocess.run(["/usr/bin/python3", "/run/work/profiled.py"])`
				}
				box.python(t, c.process)
				code, output := box.run(t, append(box.outerPython(t, outer), c.args...)...)
				assert.Zero(t, code, output)
				assert.Equal(t, want, output, "profiled: %t", library)
			}
		})
	}
}
