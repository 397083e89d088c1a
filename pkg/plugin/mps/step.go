package mps

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// Step makes a claim use its device as an MPS client. It is a prepare.Step of kind claim.StepMPS, whose effect, a control daemon with the
// compute mode, several claims share: the first one makes it, and the last one removes it.
type Step struct {
	*Service
	// MIG returns the open driver; gpu.ErrDriverNotLoaded without one.
	MIG func() (gpu.MIGDriver, error)
	// Dir is the host's directory with the directories of the daemons.
	Dir string
	// Needed reports whether the node has or advertises MPS shares. As long as it has not, the service is not asked.
	Needed func() bool
	// Hook is the CDI hook of Prism with those arguments; nil if there is none.
	Hook func(args ...string) *specs.Hook
	// Socket is the host's path of the socket on which the hook reports a container that it refuses.
	Socket string
}

// Paths of the daemon in containers.
const (
	pipeDir = "/run/prism/mps"
	// shmDir is /dev/shm in another spelling: a runtime replaces a mount if its path is spelled the same, but mounts this one over a volume
	// of the pod at /dev/shm. So the hook finds the volume, and leaves it to the container or fails the container.
	shmDir = "/dev/.//shm"
)

// precheckTime is the time limit for the first request to a service. The GPU is locked meanwhile.
const precheckTime = time.Second

// Precheck refuses a claim while the MPS service does not answer, before anything is made. It makes a round trip only on a node that
// neither holds nor advertises MPS shares. There the service is not watched and need not run: the claim is for a whole GPU or a MIG device,
// and is refused also if the service cannot start a control daemon.
func (s Step) Precheck(ctx context.Context, _ checkpoint.Step) error {
	if err := s.Watcher.Unavailable(); err != nil || s.Watcher.Asked() {
		return explained(err)
	}
	asking, stop := context.WithTimeout(ctx, precheckTime)
	defer stop()
	problem, err := s.Daemons.Probe(asking)
	if err != nil { // a listing waits for a service that restarts
		_, _, err = s.Daemons.Daemons(asking, 0)
	}
	if err == nil && problem != "" {
		return fmt.Errorf("the MPS service of this node cannot start a control daemon: %s", problem)
	}
	return explained(err)
}

// Do shares the device, and starts its daemon. The store keeps the effect.
func (s Step) Do(ctx context.Context, step checkpoint.Step) (json.RawMessage, error) {
	wanted, err := claim.ParseMPS(step.Args)
	if err != nil {
		return nil, err
	}
	device, err := s.device(ctx, step.Target, wanted.MIG)
	if err != nil {
		return nil, err
	}
	d := Shared{ID: wanted.Daemon, GPU: step.Target, settings: wanted.Default}
	return nil, s.share(ctx, d.ID, d.spec(device))
}

// device returns the UUID of the shared device: the GPU, or the MIG device at the placement.
func (s Step) device(ctx context.Context, id gpu.UUID, at *claim.MIG) (string, error) {
	if at == nil {
		return string(id), nil
	}
	driver, err := s.MIG()
	if err != nil {
		return "", err
	}
	instances, err := driver.Instances(ctx, id)
	if err != nil {
		return "", fmt.Errorf("finding the MIG device that is shared on GPU %s: %w", id, err)
	}
	i := slices.IndexFunc(instances, func(instance gpu.Instance) bool {
		return instance.Profile == at.Profile && instance.Placement == at.Placement && len(instance.Compute) > 0
	})
	if i < 0 {
		return "", fmt.Errorf("finding the MIG device that is shared on GPU %s: no %s is at memory slice %d: %w",
			id, at.Name, at.Placement.Start, gpu.ErrNotFound)
	}
	return string(instances[i].Compute[0].UUID), nil
}

// Undo ends the sharing if no other claim holds a share, else it does nothing. *gpu.MPSClientsError: processes still use it.
func (s Step) Undo(ctx context.Context, step checkpoint.Step) error {
	if !step.Last {
		return nil
	}
	wanted, err := claim.ParseMPS(step.Args)
	if err != nil {
		return err
	}
	return s.release(ctx, wanted.Daemon, step.Target)
}

// Same reports whether two steps are of one daemon.
func (Step) Same(a, b checkpoint.Step) bool {
	return a.Target == b.Target && daemonOf(a) == daemonOf(b)
}

// daemonOf is empty if the arguments cannot be read.
func daemonOf(s checkpoint.Step) gpu.MPSDaemonID {
	wanted, err := claim.ParseMPS(s.Args)
	if err != nil {
		return ""
	}
	return wanted.Daemon
}

// Verify reports whether the daemon runs: gpu.ErrNotFound if it does not. It makes a round trip only if the service has not reported by
// itself that it runs.
func (s Step) Verify(ctx context.Context, step checkpoint.Step) error {
	wanted, err := claim.ParseMPS(step.Args)
	if err != nil {
		return err
	}
	if d, known := s.Watcher.Daemon(wanted.Daemon); known && d.State == gpu.MPSRunning {
		return nil
	}
	daemons, _, err := s.Daemons.Daemons(ctx, 0)
	if err != nil {
		return fmt.Errorf("finding %s: %w", named(wanted.Daemon, step.Target), explained(err))
	}
	if d := find(daemons, wanted.Daemon); d == nil || d.State != gpu.MPSRunning {
		return fmt.Errorf("%s does not run: %w", named(wanted.Daemon, step.Target), gpu.ErrNotFound)
	}
	return nil
}

func find(daemons []gpu.MPSDaemon, id gpu.MPSDaemonID) *gpu.MPSDaemon {
	if i := slices.IndexFunc(daemons, func(d gpu.MPSDaemon) bool { return d.ID == id }); i >= 0 {
		return &daemons[i]
	}
	return nil
}

// Find lists the shared devices: devices with a saved state, if only a file of an earlier boot, and devices whose daemon the MPS service
// knows. It asks the service only on a node that has or had shares.
func (s Step) Find(ctx context.Context) ([]checkpoint.Step, error) {
	kept, err := s.Store.all()
	if err != nil {
		return nil, err
	}
	targets := map[gpu.MPSDaemonID]gpu.UUID{}
	for id := range kept {
		if kept[id].GPU != "" {
			targets[id] = kept[id].GPU
		}
	}
	if s.Needed() {
		daemons, _, err := s.Daemons.Daemons(ctx, 0)
		if err != nil {
			return nil, explained(err)
		}
		for i := range daemons {
			if d := &daemons[i]; d.Spec.GPU != "" {
				targets[d.ID] = d.Spec.GPU
			}
		}
	}
	found := make([]checkpoint.Step, 0, len(targets))
	for id, target := range targets {
		args, _ := json.Marshal(claim.MPS{MPSUse: claim.MPSUse{Daemon: id}}) // texts and numbers
		found = append(found, checkpoint.Step{Kind: claim.StepMPS, Target: target, Args: args, Last: true})
	}
	slices.SortFunc(found, func(a, b checkpoint.Step) int { return slices.Compare(a.Args, b.Args) })
	return found, nil
}

// Names reports whether both are of one daemon.
func (s Step) Names(recorded, found checkpoint.Step) bool { return s.Same(recorded, found) }

// Edits connects the containers of the device to the daemon, with the limits of the share. They may use no other device of this driver,
// which the hook verifies: of two values of a variable a container gets one. If the pod mounts a volume at /dev/shm the hook takes the
// clients' off it.
func (s Step) Edits(step checkpoint.Step) (cdi.Edits, error) {
	wanted, err := claim.ParseMPS(step.Args)
	if err != nil {
		return cdi.Edits{}, err
	}
	dir := filepath.Join(s.Dir, string(wanted.Daemon))
	shm := filepath.Join(dir, "shm")
	edits := cdi.Edits{
		Env: map[string]string{"CUDA_MPS_PIPE_DIRECTORY": pipeDir},
		Mounts: []*specs.Mount{
			mount(filepath.Join(dir, "client"), pipeDir, "ro"),
			mount(shm, shmDir, "rw"),
		},
	}
	if wanted.MemoryMiB > 0 {
		edits.Env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = fmt.Sprintf("0=%dM", wanted.MemoryMiB)
	}
	if wanted.ActiveThreadPercentage > 0 {
		edits.Env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = strconv.Itoa(wanted.ActiveThreadPercentage)
	}
	if s.Hook != nil {
		hook := s.Hook("exclusive", "--socket", s.Socket, "--claim", step.ClaimUID, "--device", step.CDIDevice,
			"--shm", shm, "--shm-size", strconv.FormatInt(wanted.Default.ShmBytes, 10))
		if hook != nil {
			edits.Hooks, edits.Exclusive = []*specs.Hook{hook}, true
		}
	}
	return edits, nil
}

func mount(from, to, access string) *specs.Mount {
	return &specs.Mount{HostPath: from, ContainerPath: to, Options: []string{access, "nosuid", "nodev", "noexec", "rbind", "rprivate"}}
}
