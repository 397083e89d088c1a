package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hook/protocol"
	"github.com/prism-gpu/prism/pkg/mpsd/client"
)

// mpsConfig advertises every GPU whole and for MPS shares.
const mpsConfig = "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\n" +
	"gpus: [{modes: [whole, mps], mps: {replicas: 8, memory: {default: 1Gi}}}]\n"

// Numbers of samples for MPS shares.
const (
	firstShares = 16
	nextShares  = 64
	countedMPS  = 8
	roundTrips  = 200
	hookRuns    = 50
)

// The budgets of MPS shares that are not ratios.
const (
	firstShareBudget = 100 * time.Millisecond
	hookBudget       = 10 * time.Millisecond
	mpsdBudget       = 16 << 20
)

// The counts of a share: the first share of a GPU starts the control daemon, the last stops it, and a share between them does neither. The
// plugin reads the MIG mode before each.
var (
	FirstShareLimits = Limits{Limit{Durable: 2, Reads: 1, NVML: 3}, Limit{Durable: 2, NVML: 1}}
	NextShareLimits  = Limits{Limit{Durable: 2, Reads: 1, NVML: 1}, Limit{Durable: 2}}
)

const mpsTitle = "MPS shares"

// mpsService is a process of the MPS service for one driver name.
type mpsService struct {
	*client.Client

	init   *exec.Cmd
	socket string
}

// serveMPS starts the service of a driver, and returns when it answers.
func (b *bencher) serveMPS(ctx context.Context, driver string) (*mpsService, error) {
	s := &mpsService{socket: filepath.Join("/run", driver, "mpsd.sock")}
	s.Client = client.New(s.socket)
	s.init = exec.CommandContext(ctx, filepath.Join(filepath.Dir(b.Binary), "prism-mpsd"), "--driver-name="+driver, "--host-root=/")
	s.init.Stderr = os.Stderr
	s.init.Cancel = func() error { return s.init.Process.Signal(syscall.SIGTERM) }
	if err := s.init.Start(); err != nil {
		return nil, fmt.Errorf("starting the MPS service: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		_, err := s.Info(ctx)
		if err == nil || ctx.Err() != nil {
			return s, err
		}
		pause(ctx, time.Millisecond)
	}
}

// close stops the service, and removes its files.
func (s *mpsService) close() error {
	if s == nil {
		return nil
	}
	failed := s.init.Process.Signal(syscall.SIGTERM)
	_ = s.init.Wait() // always reports that it was stopped
	return errors.Join(failed, os.RemoveAll(filepath.Dir(s.socket)))
}

// mps measures MPS shares with a plugin that advertises them and an MPS service of its own.
func (b *bencher) mps(ctx context.Context) (err error) {
	const driver = "mps.bench"
	config := filepath.Join(b.KubeletDir, "bench-mps.yaml")
	if err := os.WriteFile(config, []byte(mpsConfig), 0o600); err != nil {
		return fmt.Errorf("writing the configuration of a plugin: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(config)) }()
	service, err := b.serveMPS(ctx, driver)
	defer func() { err = errors.Join(err, service.close()) }()
	if err != nil {
		return err
	}
	program := func(s *Second) []string { return inImage(filepath.Dir(b.Binary), b.prism("--node-config="+config)(s)) }
	return b.with(ctx, driver, true, program, func(s *Second, _ time.Duration) error { return b.shares(ctx, s, service) })
}

// inImage returns a command that finds the programs of the image in /usr/bin, as the plugin's hook requires: in its own mount namespace, on
// a read-only file system.
func inImage(programs string, command []string) []string {
	const script = `mount -t overlay -o "ro,lowerdir=$0:/usr/bin" overlay /usr/bin && exec "$@"`
	return append([]string{"unshare", "--mount", "--propagation", "slave", "/bin/sh", "-c", script, programs}, command...)
}

// shares runs all measurements of MPS shares.
func (b *bencher) shares(ctx context.Context, s *Second, service *mpsService) error {
	devices, err := Published(ctx, b.client, s.Driver, b.Node, Wanted{Type: "mps", Least: len(b.devices)})
	if err != nil {
		return err
	}
	if err := errors.Join(b.idleMPS(ctx, s, service), b.firstShare(ctx, s, service, devices), b.nextShare(ctx, s, service, devices)); err != nil {
		return err
	}
	return b.hook(ctx)
}

// idleMPS reports the memory of the service and of a plugin that uses it.
func (b *bencher) idleMPS(ctx context.Context, s *Second, service *mpsService) error {
	pause(ctx, quiet)
	worker, err := listener(ctx, service.socket)
	if err != nil {
		return err
	}
	both := 0 // shared pages count once
	for _, pid := range []int{service.init.Process.Pid, worker} {
		share, err := proportionalShare(pid)
		if err != nil {
			return err
		}
		both += share
	}
	plugin, err := MemoryOf(s.Plugin.PID)
	b.report.Add(mpsTitle, "",
		Row{Name: "resident memory of prism-mpsd, both processes, idle", Count: both, Bytes: true, Budget: InMemory(mpsdBudget)},
		Row{Name: "resident memory of the plugin, idle", Count: int(plugin.Resident), Bytes: true, Budget: InMemory(memoryBudget)},
		Row{Name: "of which anonymous, idle", Count: int(plugin.Anonymous), Bytes: true, Budget: InMemory(ownMemoryBudget)})
	return err
}

// firstShare measures shares of GPUs without other shares, beside the time that the service needs to start and stop control daemon and
// server.
func (b *bencher) firstShare(ctx context.Context, s *Second, service *mpsService, devices []Device) error {
	costs, err := b.shareCosts(ctx, s, devices)
	if err != nil {
		return err
	}
	b.report.Add("operations for one claim: the only MPS share of a GPU", "", FirstShareLimits.rows(1, costs)...)
	claims, err := s.Claims.Make(ctx, migWarmUp+firstShares, devices[:1])
	if err != nil {
		return err
	}
	took, err := OneByOne(ctx, s.Plugin, claims, 1, migWarmUp, func(ctx context.Context, claims ...Claim) error {
		return s.Claims.Reported(ctx, claims...)
	})
	if err != nil {
		return err
	}
	alone, err := b.daemonAlone(ctx, s, service, devices[0])
	if err != nil {
		return err
	}
	rows := took.rows("prepare the first share", "unprepare the last share", Latency{})
	rows[0].Budget = Within(alone.Prepare.P50() + firstShareBudget)
	b.report.Add(mpsTitle, "", alone.rows("control daemon and server alone, to start them", "control daemon and server alone, to stop them", Latency{})...)
	b.report.Add(mpsTitle, "", rows...)
	return nil
}

// daemonAlone measures the control daemon of a device without a plugin.
func (b *bencher) daemonAlone(ctx context.Context, s *Second, service *mpsService, device Device) (alone Latency, err error) {
	one, err := s.Claims.Make(ctx, 1, []Device{device})
	if err != nil {
		return alone, err
	}
	if err := s.Plugin.Prepare(ctx, one...); err != nil {
		return alone, err
	}
	id := gpu.MPSDaemonID(strings.TrimSuffix(strings.TrimPrefix(device.Name, "gpu-"), "-mps"))
	running, _, err := service.Daemons(ctx, 0)
	if err = errors.Join(err, s.Plugin.Unprepare(ctx, one...)); err != nil {
		return alone, err
	}
	for _, d := range running {
		if d.ID != id {
			continue
		}
		for range firstShares {
			started, err := timed(func() error { _, err := service.Ensure(ctx, id, d.Spec); return err })
			stopped, stopErr := timed(func() error { return service.Stop(ctx, id) })
			if err = errors.Join(err, stopErr); err != nil {
				return alone, err
			}
			alone.add(Latency{Samples{started}, Samples{stopped}})
		}
		return alone, nil
	}
	return alone, fmt.Errorf("the MPS service does not list the control daemon %s of a prepared claim", id)
}

// nextShare measures shares of a GPU that already has one.
func (b *bencher) nextShare(ctx context.Context, s *Second, service *mpsService, devices []Device) error {
	kept, err := s.Claims.Make(ctx, 1, devices[:1])
	if err != nil {
		return err
	}
	if err := errors.Join(s.Plugin.Prepare(ctx, kept...), s.Claims.Reported(ctx, kept...)); err != nil {
		return err
	}
	costs, err := b.shareCosts(ctx, s, devices[:1])
	if err != nil {
		return err
	}
	b.report.Add("operations for one claim: an MPS share beside another one", "", NextShareLimits.rows(1, costs)...)
	claims, err := s.Claims.Make(ctx, warmUp+nextShares, devices[:1])
	if err != nil {
		return err
	}
	took, err := OneByOne(ctx, s.Plugin, claims, 4, warmUp, s.Claims.Reported)
	if err != nil {
		return err
	}
	trip, err := repeat(roundTrips, warmUp, func() error { _, _, err := service.Daemons(ctx, 0); return err })
	rows := took.rows("prepare another share", "unprepare a share that is not the last", Latency{})
	if b.whole.Prepare != nil {
		rows[0].Budget = Within(b.whole.Prepare.P50() + b.floor.Durable.P50() + trip.P50())
	}
	b.report.Add(mpsTitle, "", append(rows, Row{Name: "round trip to prism-mpsd", Samples: trip})...)
	return errors.Join(err, s.Plugin.Unprepare(ctx, kept...))
}

// shareCosts counts the operations of claims for the devices, one at a time.
func (b *bencher) shareCosts(ctx context.Context, s *Second, devices []Device) (Costs, error) {
	driver, err := OpenNVML(b.SimgpuRoot)
	if err != nil {
		return Costs{}, err
	}
	claims, err := s.Claims.Make(ctx, 2*countedMPS+gatedClaims, devices)
	if err != nil {
		return Costs{}, err
	}
	synced, err := CountSyscalls(ctx, s.Plugin, claims[:countedMPS], 1)
	if err != nil {
		return Costs{}, err
	}
	called, err := CountNVML(ctx, driver, s.Plugin, claims[countedMPS:2*countedMPS])
	if err != nil {
		return Costs{}, err
	}
	if err := s.Claims.Reported(ctx, claims[:2*countedMPS]...); err != nil {
		return Costs{}, err
	}
	requested, err := s.CountRequests(ctx, claims[2*countedMPS:], 1)
	return synced.most(called).most(requested), err
}

// hook measures the hook that every container with an MPS share runs.
func (b *bencher) hook(ctx context.Context) error {
	bundle, err := os.MkdirTemp("", "bench-hook-")
	if err != nil {
		return fmt.Errorf("creating a container's bundle: %w", err)
	}
	defer os.RemoveAll(bundle)
	const device = "bench"
	config := fmt.Sprintf(`{"ociVersion":"1.2.0","process":{"args":["true"],"cwd":"/","env":["PATH=/usr/bin","%s=mps"]},"root":{"path":"rootfs"}}`,
		protocol.Mark(device))
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(config), 0o600); err != nil {
		return fmt.Errorf("creating a container's bundle: %w", err)
	}
	container, err := startContainer(ctx)
	if err != nil {
		return err
	}
	defer func() { _, _ = container.Process.Kill(), container.Wait() }()
	state := fmt.Sprintf(`{"ociVersion":"1.2.0","id":"bench","status":"creating","pid":%d,"bundle":%q}`, container.Process.Pid, bundle)
	took, err := repeat(hookRuns, 2, func() error {
		hook := exec.CommandContext(ctx, filepath.Join(filepath.Dir(b.Binary), "prism-hook"), "exclusive", "--socket", filepath.Join(bundle, "hook.sock"),
			"--claim", "bench", "--device", device, "--shm", bundle, "--shm-size", "1073741824")
		hook.Stdin = strings.NewReader(state)
		if out, err := hook.CombinedOutput(); err != nil {
			return fmt.Errorf("running prism-hook: %w: %s", err, out)
		}
		return nil
	})
	b.report.Add(mpsTitle, "", Row{Name: "prism-hook, for each container", Samples: took, Budget: Within(hookBudget)})
	return err
}

// startContainer starts a process in its own namespaces, in which prism-hook finds the process of a container.
func startContainer(ctx context.Context) (*exec.Cmd, error) {
	container := exec.CommandContext(ctx, "unshare", "--ipc", "--mount", "sleep", "infinity")
	if err := container.Start(); err != nil {
		return nil, fmt.Errorf("starting a container: %w", err)
	}
	own, err := os.Readlink("/proc/self/ns/ipc")
	for err == nil {
		var its string
		if its, err = os.Readlink(fmt.Sprintf("/proc/%d/ns/ipc", container.Process.Pid)); err == nil && its != own {
			return container, nil
		}
		pause(ctx, time.Millisecond)
		if err == nil {
			err = ctx.Err()
		}
	}
	_, _ = container.Process.Kill(), container.Wait()
	return nil, fmt.Errorf("starting a container: %w", err)
}
