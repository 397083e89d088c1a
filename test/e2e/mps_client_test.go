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

// contextMiB is the memory of a context on a simulated GPU; it counts for the process.
const contextMiB = 512

// gpuMem returns simgpu's program that allocates GPU memory; the test copies it into containers.
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

// execLine returns a command line that runs in a container of a pod.
func (ns *namespace) execLine(pod, container string, command ...string) []string {
	return ns.kubectl(append([]string{"--namespace", ns.name, "exec", "--stdin", pod, "--container", container, "--"}, command...)...)
}

// bringProgram copies the program into the container.
func (ns *namespace) bringProgram(pod, container string) {
	ns.t.Helper()
	require.NoError(ns.t, ns.tryProgram(pod, container))
}

// tryProgram is bringProgram for a container that may exit as soon as it receives the program.
func (ns *namespace) tryProgram(pod, container string) error {
	ns.t.Helper()
	program, err := gpuMem()
	require.NoError(ns.t, err)
	const script = "cat >/tmp/gpu-mem.$$ && chmod 755 /tmp/gpu-mem.$$ && mv /tmp/gpu-mem.$$ /tmp/gpu-mem"
	_, err = ns.run(program, ns.execLine(pod, container, "sh", "-c", script)...)
	return err
}

// allocates runs a process in the container that allocates this amount on its GPU and exits. It returns the output: the GPU as the process
// sees it, and the error if there was one.
func (ns *namespace) allocates(pod, container string, mebibytes int) string {
	ns.t.Helper()
	ns.bringProgram(pod, container)
	out, err := ns.run("", ns.execLine(pod, container, "sh", "-c", fmt.Sprintf("/tmp/gpu-mem %d </dev/null || true", mebibytes))...)
	require.NoError(ns.t, err, out)
	assert.NotContains(ns.t, out, ": 805", "a client found no server in %s/%s", pod, container)
	return out
}

// limitedTo checks that a process without other memory can allocate exactly the limit.
func (ns *namespace) limitedTo(pod, container string, limitMiB int) {
	ns.t.Helper()
	most := limitMiB - contextMiB
	assert.Contains(ns.t, ns.allocates(pod, container, most), fmt.Sprintf("holding %d MiB", most))
	more := ns.allocates(pod, container, most+1)
	assert.Contains(ns.t, more, fmt.Sprintf("free %d MiB", most), "the GPU as the process sees it")
	assert.Contains(ns.t, more, "cuMemAlloc_v2: 2", "out of memory")
}

// gpuClient is a process in a container that holds GPU memory, and allocates more on request.
type gpuClient struct {
	ns             *namespace
	pod, container string
}

// holdsMemory starts a process in the container that holds this amount, and waits until it does.
func (ns *namespace) holdsMemory(pod, container string, mebibytes int) *gpuClient {
	ns.t.Helper()
	c := &gpuClient{ns, pod, container}
	assert.Contains(ns.t, c.starts(mebibytes), "holding", "in %s/%s", pod, container)
	return c
}

// starts starts the process again and returns its output up to the line that says whether it holds the memory.
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

// printed returns the output of the process so far.
func (c *gpuClient) printed() string {
	c.ns.t.Helper()
	return c.shell("cat /tmp/out")
}

// more allocates one MiB more, and returns the answer of the process: "allocated", or the error.
func (c *gpuClient) more() string {
	c.ns.t.Helper()
	return strings.TrimSpace(c.shell(`n=$(wc -l </tmp/out); printf x >/tmp/in
for i in $(seq 9000); do [ "$(wc -l </tmp/out)" -gt "$n" ] && break; sleep 0.1; done; tail -n +$((n+1)) /tmp/out`))
}

// exits stops the process.
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
