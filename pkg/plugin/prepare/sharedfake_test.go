package prepare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// daemons are the MPS control daemons of a world, by GPU: an effect that claims share.
type daemons struct {
	*world
	running map[gpu.UUID]bool
}

// newDaemons is a world of two GPUs, each advertised whole and as three MPS shares with 6144 MiB together.
func newDaemons() daemons {
	w := newWorld(2)
	w.layout = gpu.Layout{}
	for i := range w.node.GPUs {
		w.layout[uuid(i)] = gpu.Modes{Whole: true, MPS: &gpu.MPSSharing{ShareName: "gpu-2gb", MPSSize: gpu.MPSSize{
			Replicas: 3, Memory: gpu.MPSMemory{Total: 6 << 30, Default: 2 << 30, Min: 1 << 30, Max: 6 << 30, Step: 1 << 20},
		}}}
	}
	for _, family := range claim.Families() {
		if family.Type() == gpu.TypeMPS {
			family = clients{family}
		}
		w.families = append(w.families, family)
	}
	return daemons{w, map[gpu.UUID]bool{}}
}

// clients plans MPS shares that have as much memory as their request's name says, in MiB.
type clients struct{ claim.DevicePlanner }

func (clients) Plan(p *claim.Plan, r *claim.Result, _ claim.Options, modes gpu.Modes) error {
	use := &claim.MPSUse{Daemon: gpu.MPSDaemonOf(r.Device), ActiveThreadPercentage: 50}
	if _, err := fmt.Sscanf(r.Request, "r%d", &use.MemoryMiB); err != nil {
		return err
	}
	args, err := json.Marshal(claim.MPS{MPSUse: *use, Bounds: &claim.MPSBounds{
		MemoryMiB: modes.MPS.Memory.Total >> 20, Shares: modes.MPS.Replicas,
	}})
	r.Extend(claim.KindMPS, use)
	p.Steps = append(p.Steps, claim.Step{Kind: claim.StepMPS, Target: r.Device.Parent().UUID, Device: r.Device.Name(), ShareID: r.ShareID, Args: args})
	return err
}

// wantsMPS is a claim for shares of the first GPU with so much memory each.
func wantsMPS(uid string, memory ...int) *resourceapi.ResourceClaim {
	devices := make([]string, len(memory))
	for i := range devices {
		devices[i] = mpsShare
	}
	rc := wantsShare(uid, devices...)
	for i := range rc.Status.Allocation.Devices.Results {
		rc.Status.Allocation.Devices.Results[i].Request = fmt.Sprintf("r%d-%d", memory[i], i)
	}
	return rc
}

var mpsShare = device(0) + "-mps"

// startMPS starts a process that knows MPS.
func (d daemons) startMPS(t *testing.T) *process {
	t.Helper()
	p := d.process(t)
	p.Steps[claim.StepMPS] = d
	p.run(p.options())
	return p
}

func (d daemons) Do(ctx context.Context, s checkpoint.Step) (json.RawMessage, error) {
	return json.RawMessage(`{}`), d.op("do "+s.ShareID, unlessEnded(ctx, func() error { d.running[s.Target] = true; return nil }))
}

func (d daemons) Undo(ctx context.Context, s checkpoint.Step) error {
	if !s.Last {
		return d.op("leave "+s.ShareID, unlessEnded(ctx, func() error { return nil }))
	}
	return d.op("stop "+s.ShareID, unlessEnded(ctx, func() error { delete(d.running, s.Target); return nil }))
}

func (daemons) Same(a, b checkpoint.Step) bool { return daemonOf(a) == daemonOf(b) }

func daemonOf(s checkpoint.Step) gpu.MPSDaemonID {
	args, err := claim.ParseMPS(s.Args)
	if err != nil {
		panic(err)
	}
	return args.Daemon
}

func (d daemons) Find(ctx context.Context) (found []checkpoint.Step, err error) {
	err = d.op("find daemons", unlessEnded(ctx, func() error {
		for i := range d.node.GPUs {
			if id := d.node.GPUs[i].UUID; d.running[id] {
				args, err := json.Marshal(claim.MPSUse{Daemon: gpu.MPSDaemonID(d.node.GPUs[i].ID)})
				found = append(found, checkpoint.Step{Target: id, Args: args})
				if err != nil {
					return err
				}
			}
		}
		return nil
	}))
	return found, err
}

// Exceeded compares with the plan.
func (d daemons) Exceeded(s checkpoint.Step, results []json.RawMessage) (string, error) {
	args, err := claim.ParseMPS(s.Args)
	if err != nil {
		return "", err
	}
	return args.Exceeded(results)
}

func (d daemons) Names(recorded, found checkpoint.Step) bool { return d.Same(recorded, found) }

// serving requires that a daemon runs on the first GPU just as long as a claim needs it.
func (d daemons) serving(t *testing.T) {
	t.Helper()
	needed, done := false, false
	for uid := range d.records {
		r := d.record(t, uid)
		needed = needed || r.BootID == d.boot && len(r.Steps) > 0
		done = done || r.BootID == d.boot && r.State == checkpoint.Done
	}
	require.True(t, d.running[uuid(0)] || !done, "a prepared claim has no daemon")
	require.True(t, needed || !d.running[uuid(0)], "a daemon runs without a claim")
}

// reads counts how often all records were read since it was called last.
func (d daemons) reads() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, op := range d.journal {
		if op == "all" {
			n++
		}
	}
	return n
}

var errCrashed = errors.New("it crashed")
