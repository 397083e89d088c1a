package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

const (
	driverName = "gpu.prism.dev"
	// gpuClass is the chart's class for whole GPUs.
	gpuClass = driverName
	// commandLimit stops a program that hangs. A program that waits sets a shorter limit itself.
	commandLimit = startLimit + 5*time.Minute
	// nodeGPUs is the number of GPUs of the node. As in values.yaml, GPUs with an index of at least firstMIG are advertised as MIG devices
	// too, and the GPUs in sharedGPUs as time-sliced and MPS shares.
	nodeGPUs, firstMIG = 8, 6
)

// cluster is the cluster of the tests.
type cluster struct {
	name string
	// root is the root of the repository.
	root string
	gpus *pool
	// reader serves the repeated reads of the tests.
	reader rest.Interface

	mu  sync.Mutex
	env map[string]string
}

var connected = sync.OnceValues(connect)

func connect() (*cluster, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	c := &cluster{name: os.Getenv("PRISM_CLUSTER"), root: root}
	if err := c.learn(); err != nil {
		return nil, err
	}
	if c.reader, err = newReader(c.variable("KUBECONFIG")); err != nil {
		return nil, err
	}
	boards, err := c.boards()
	if err != nil {
		return nil, err
	}
	if len(boards) < nodeGPUs {
		return nil, fmt.Errorf("the node has %d GPUs: the tests need %d", len(boards), nodeGPUs)
	}
	c.gpus = newPool(len(boards), len(boards)-firstMIG+len(sharedGPUs))
	_, err = c.run("", c.kubectl("delete", "namespaces", "--selector", ownLabel, "--timeout="+startLimit.String())...)
	return c, err
}

// open returns the cluster, or skips the test without one.
func open(t *testing.T) *cluster {
	t.Helper()
	if os.Getenv("PRISM_CLUSTER") == "" {
		t.Skip("no cluster: start this with hack/e2e.sh, or set the variables that `localcluster env` prints")
	}
	c, err := connected()
	require.NoError(t, err)
	return c
}

// learn reads the cluster's environment. The node's process, and with it the paths of its files, change with every boot.
func (c *cluster) learn() error {
	out, err := c.run("", c.localcluster("env")...)
	if err != nil {
		return err
	}
	env := map[string]string{}
	for line := range strings.Lines(out) {
		name, value, found := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		if found {
			env[name] = strings.Trim(value, "'")
		}
	}
	// The first folder contains kubectl and helm of the cluster's version.
	env["PATH"], _, _ = strings.Cut(env["PATH"], ":")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.env = env
	return nil
}

func (c *cluster) variable(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.env[name]
}

// localcluster returns a command line of the program that runs the cluster.
func (c *cluster) localcluster(args ...string) []string {
	return append([]string{filepath.Join(c.root, "bin/localcluster"), "--name", c.name}, args...)
}

// kubectl returns a command line of kubectl.
func (c *cluster) kubectl(args ...string) []string {
	return append([]string{filepath.Join(c.variable("PATH"), "kubectl"), "--kubeconfig", c.variable("KUBECONFIG")}, args...)
}

// run runs a command line and returns its output. If it fails, the error contains its stderr.
func (c *cluster) run(stdin string, line ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.root, strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(line[0]), strings.Join(line[1:], " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), err
}

// must runs a command line and fails the test if that fails.
func (c *cluster) must(t *testing.T, line ...string) string {
	t.Helper()
	out, err := c.run("", line...)
	require.NoError(t, err)
	return out
}

// notices is eventually for changes that the product notices itself after a time. It logs that time.
func notices(t *testing.T, what string, check func() error) {
	t.Helper()
	start := time.Now()
	eventually(t, startLimit, check)
	t.Logf("%s: after %.1f s", what, time.Since(start).Seconds())
}

// interval is the time between two reads of a changing value.
const interval = 100 * time.Millisecond

// eventually repeats a check until it returns no error. After the time limit, its last error fails the test.
func eventually(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	limit := time.After(within)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-limit:
			require.NoError(t, err, "still so after %s", within)
		case <-time.After(interval):
		}
	}
}
