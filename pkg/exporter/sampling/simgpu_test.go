package sampling

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/exporter/sampler"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

var _ sampler.Library = (*Driver)(nil)

const childLibrary = "PRISM_TEST_LIBRARY"

// read is the result of one round on the first GPU, in a form that crosses a process boundary.
type read struct {
	Err        string
	Identity   metrics.Identity
	Values     map[metrics.Field]float64
	MIGDevices []readMIG
	Processes  []readProcess
	Hidden     bool
	Sampled    bool
	// Code and Instance describe the XID.
	Code     uint64
	Instance int
}

type readMIG struct {
	Facts  metrics.MIGDevice
	Values map[metrics.Field]float64
}

// readProcess uses -1 for a missing value.
type readProcess struct {
	PID        uint32
	MIG        gpu.UUID
	Memory, SM float64
	Server     bool
}

// allFields returns the set of all fields.
func allFields() metrics.FieldSet {
	var all metrics.FieldSet
	for f := range metrics.FieldCount {
		all.Add(f)
	}
	return all
}

// TestMain is also the child process of the tests. The child binds the simulated library; the test's own process must not.
func TestMain(m *testing.M) {
	path := os.Getenv(childLibrary)
	if path == "" {
		os.Exit(sandbox.OnGPUMachine(m))
	}
	within := func(deadline time.Duration) *Driver {
		return New(Options{Find: func() (string, error) { return path, nil }, Deadline: deadline})
	}
	d := within(5 * time.Minute) // no call takes so long, even on a busy machine
	answers := json.NewEncoder(os.Stdout)
	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		var command string
		var argument int
		_, _ = fmt.Sscan(asked.Text(), &command, &argument) // the default argument is 0
		r := &read{}
		if command == "deadline" {
			d = within(time.Duration(argument) * time.Second)
		} else if err := do(d, command, argument, r); err != nil {
			r.Err = err.Error()
		}
		if err := answers.Encode(r); err != nil {
			os.Exit(1)
		}
	}
	_ = d.Close() // it may be closed already
	os.Exit(0)
}

func do(d *Driver, command string, argument int, r *read) error {
	ctx := context.Background()
	var id gpu.UUID
	if d.session != nil {
		for uuid := range d.devices {
			id = uuid
		}
	}
	switch command {
	case "open":
		if err := d.Open(ctx); err != nil {
			return err
		}
		identities, faults, err := d.GPUs(ctx)
		for _, fault := range faults {
			return fault.Err
		}
		if len(identities) > 0 {
			r.Identity = identities[0]
		}
		return err
	case "close":
		return d.Close()
	case "release":
		return d.ReleaseSamples(ctx, id, argument)
	case "xid":
		_, xid, err := d.NextXID(ctx, time.Duration(argument)*time.Millisecond)
		r.Code, r.Instance = xid.Code, xid.GPUInstance
		return err
	default:
		return round(ctx, d, id, r)
	}
}

func round(ctx context.Context, d *Driver, id gpu.UUID, r *read) error {
	fields := allFields()
	identity, devices, err := d.MIGDevices(ctx, id)
	if err != nil {
		return err
	}
	r.Identity = identity
	list, err := d.Processes(ctx, id, time.Minute) // the node's clock runs faster than the clock of this process
	if err != nil {
		return err
	}
	for i := range list.Processes {
		p := &list.Processes[i]
		r.Processes = append(r.Processes, readProcess{
			PID: p.PID, MIG: p.MIG, Memory: orNone(p.MemoryBytes), SM: orNone(p.SM), Server: p.ServesClients,
		})
	}
	r.Hidden, r.Sampled = list.Hidden, list.Sampled
	var values metrics.Values
	if err := d.Values(ctx, id, fields, &values); err != nil {
		return err
	}
	if err := d.Sample(ctx, id, wholeGPU, fields, false, &values); err != nil {
		return err
	}
	r.Values = valuesOf(&values)
	for i := range devices {
		if err := d.MIGValues(ctx, id, &devices[i], fields); err != nil {
			return err
		}
		if err := d.Sample(ctx, id, devices[i].GPUInstance, fields, false, &devices[i].Values); err != nil {
			return err
		}
		r.MIGDevices = append(r.MIGDevices, readMIG{Facts: devices[i], Values: valuesOf(&devices[i].Values)})
	}
	return nil
}

func orNone(v float64) float64 {
	if math.IsNaN(v) {
		return -1
	}
	return v
}

func valuesOf(v *metrics.Values) map[metrics.Field]float64 {
	list := map[metrics.Field]float64{}
	for f := range metrics.FieldCount {
		if value, ok := v.Get(f); ok {
			list[f] = value
		}
	}
	return list
}

// child is a process that samples the first GPU of a node.
type child struct {
	t       *testing.T
	node    *sandbox.Node
	command *exec.Cmd
	in      io.Writer
	out     *json.Decoder
	// pass advances the time of the node's GPUs, which otherwise stands still.
	pass func(time.Duration)
}

// samplingOn starts a child on a node with that board, after running nvidia-smi with each list of arguments.
func samplingOn(t *testing.T, board string, nvidiaSMI ...[]string) *child {
	t.Helper()
	return samplingOf(t, model.Uniform("node", board, 1), nvidiaSMI...)
}

// samplingOf is samplingOn for any node.
func samplingOf(t *testing.T, spec model.Spec, nvidiaSMI ...[]string) *child {
	t.Helper()
	node := sandbox.Start(t, spec)
	var now atomic.Int64
	now.Store(time.Now().UnixNano())
	node.Model.SetClock(func() time.Time { return time.Unix(0, now.Load()) })
	for _, args := range nvidiaSMI {
		smi(t, node, args...)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	command := exec.Command(self) //nolint:noctx // it ends with its input, in the cleanup, when the test's context has ended
	command.Env = append(os.Environ(), childLibrary+"="+node.Library())
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	require.NoError(t, err)
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		require.NoError(t, in.Close())
		require.NoError(t, command.Wait(), "the child ended by itself")
	})
	return &child{t: t, node: node, command: command, in: in, out: json.NewDecoder(out), pass: func(d time.Duration) { now.Add(int64(d)) }}
}

// ask sends a command to the child and returns its result.
func (c *child) ask(command string) read {
	c.t.Helper()
	_, err := fmt.Fprintln(c.in, command)
	require.NoError(c.t, err)
	var r read
	require.NoError(c.t, c.out.Decode(&r))
	return r
}

// must is ask for a command that must succeed.
func (c *child) must(command string) read {
	c.t.Helper()
	r := c.ask(command)
	require.Empty(c.t, r.Err)
	return r
}

// calls returns the number of the child's calls so far.
func (c *child) calls() int {
	return int(c.node.Model.Calls.Of(c.command.Process.Pid).Total)
}

// load starts a program that uses the GPU until the test ends or it is killed.
func (c *child) load(args ...string) *exec.Cmd {
	c.t.Helper()
	command := exec.CommandContext(c.t.Context(), c.node.GPULoad(), args...)
	command.Env = []string{"LD_LIBRARY_PATH=" + c.node.LibraryDir()}
	out, err := command.StdoutPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, command.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		_ = command.Process.Kill() // it may have exited
		_ = command.Wait()
	})
	return command
}

func smi(t *testing.T, node *sandbox.Node, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), node.SMI(), args...)
	command.Env = []string{"LD_LIBRARY_PATH=" + node.LibraryDir()}
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
}

// succeeds runs a program of the node.
func succeeds(t *testing.T, node *sandbox.Node, program string, args ...string) bool {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	command.Env = []string{"LD_LIBRARY_PATH=" + node.LibraryDir()}
	return command.Run() == nil
}
