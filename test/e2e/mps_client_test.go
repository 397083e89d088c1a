package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// contextMiB is the memory that a context of a simulated GPU takes; it counts as the process's.
const contextMiB = 512

// gpuMem is simgpu's program that allocates GPU memory, which containers get from the test.
var gpuMem = sync.OnceValues(func() (string, error) {
	c, err := connected()
	if err != nil {
		return "", err
	}
	bundle, err := c.run("", filepath.Join(c.root, "bin/simgpu"), "build")
	if err != nil {
		return "", err
	}
	program, err := os.ReadFile(filepath.Join(strings.TrimSpace(bundle), "tool/gpu-mem"))
	return string(program), err
})

// execLine is a command line for a container of a pod.
func (ns *namespace) execLine(pod, container string, command ...string) []string {
	return ns.kubectl(append([]string{"--namespace", ns.name, "exec", "--stdin", pod, "--container", container, "--"}, command...)...)
}

// bringProgram puts the program into the container.
func (ns *namespace) bringProgram(pod, container string) {
	ns.t.Helper()
	require.NoError(ns.t, ns.tryProgram(pod, container))
}

// tryProgram is bringProgram for a container that may exit as soon as it has the program.
func (ns *namespace) tryProgram(pod, container string) error {
	ns.t.Helper()
	program, err := gpuMem()
	require.NoError(ns.t, err)
	const script = "cat >/tmp/gpu-mem.$$ && chmod 755 /tmp/gpu-mem.$$ && mv /tmp/gpu-mem.$$ /tmp/gpu-mem"
	_, err = ns.run(program, ns.execLine(pod, container, "sh", "-c", script)...)
	return err
}

// allocates runs a process in the container that allocates so much on its GPU and exits, and returns what it printed: what it sees of the
// GPU, and the error if there was one.
func (ns *namespace) allocates(pod, container string, mebibytes int) string {
	ns.t.Helper()
	ns.bringProgram(pod, container)
	out, err := ns.run("", ns.execLine(pod, container, "sh", "-c", fmt.Sprintf("/tmp/gpu-mem %d </dev/null || true", mebibytes))...)
	require.NoError(ns.t, err, out)
	assert.NotContains(ns.t, out, ": 805", "a client found no server in %s/%s", pod, container)
	return out
}

// limitedTo checks that exactly the limit can be allocated by a process that has nothing else.
func (ns *namespace) limitedTo(pod, container string, limitMiB int) {
	ns.t.Helper()
	most := limitMiB - contextMiB
	assert.Contains(ns.t, ns.allocates(pod, container, most), fmt.Sprintf("holding %d MiB", most))
	more := ns.allocates(pod, container, most+1)
	assert.Contains(ns.t, more, fmt.Sprintf("free %d MiB", most), "what it sees of the GPU")
	assert.Contains(ns.t, more, "cuMemAlloc_v2: 2", "out of memory")
}

// gpuClient is a process in a container that holds GPU memory and allocates more when it is asked.
type gpuClient struct {
	ns             *namespace
	pod, container string
}

// holdsMemory starts a process in the container that holds so much, and waits until it does.
func (ns *namespace) holdsMemory(pod, container string, mebibytes int) *gpuClient {
	ns.t.Helper()
	c := &gpuClient{ns, pod, container}
	assert.Contains(ns.t, c.starts(mebibytes), "holding", "in %s/%s", pod, container)
	return c
}

// starts starts the process again and returns what it printed first, up to a line that says whether it holds the memory.
func (c *gpuClient) starts(mebibytes int) string {
	c.ns.t.Helper()
	c.begins(mebibytes)
	return c.shell(`for i in $(seq 9000); do grep -q 'holding\|exited' /tmp/out && break; sleep 0.1; done; cat /tmp/out`)
}

// begins starts the process again, and does not wait for it.
func (c *gpuClient) begins(mebibytes int) {
	c.ns.t.Helper()
	c.ns.bringProgram(c.pod, c.container)
	c.shell(fmt.Sprintf(`rm -f /tmp/in /tmp/out; mkfifo /tmp/in; : >/tmp/out
(exec 3<>/tmp/in; /tmp/gpu-mem %d <&3 >>/tmp/out 2>&1; echo exited >>/tmp/out) >/dev/null 2>&1 </dev/null &`, mebibytes))
}

// printed is what the process has printed.
func (c *gpuClient) printed() string {
	c.ns.t.Helper()
	return c.shell("cat /tmp/out")
}

// more allocates one MiB more, and returns what the process printed for it: "allocated", or the error.
func (c *gpuClient) more() string {
	c.ns.t.Helper()
	return strings.TrimSpace(c.shell(`n=$(wc -l </tmp/out); printf x >/tmp/in
for i in $(seq 9000); do [ "$(wc -l </tmp/out)" -gt "$n" ] && break; sleep 0.1; done; tail -n +$((n+1)) /tmp/out`))
}

// exits ends the process.
func (c *gpuClient) exits() {
	c.ns.t.Helper()
	c.shell(`for p in /proc/[0-9]*; do [ "$(cat $p/comm 2>/dev/null)" != gpu-mem ] || kill -KILL ${p#/proc/}; done`)
}

func (c *gpuClient) shell(script string) string {
	c.ns.t.Helper()
	out, err := c.ns.run("", c.ns.execLine(c.pod, c.container, "sh", "-c", script)...)
	require.NoError(c.ns.t, err, out)
	return out
}
