package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options say what is measured. It runs on the node itself: its files, its sockets, its process ids.
type Options struct {
	// API is the cluster's API server, Node the name of the node that this runs on.
	API  *rest.Config
	Node string
	// Driver is the installed driver.
	Driver string
	// KubeletDir is the kubelet's, SimgpuRoot the directory of the simulated NVIDIA driver.
	KubeletDir, SimgpuRoot string
	// Binary is the program of the plugin, for the runs that need one of their own.
	Binary string
	// Progress is told what is being measured.
	Progress io.Writer
}

// How much is measured: enough for a 99th percentile, little enough for a coffee.
const (
	singleClaims   = warmUp + 250
	parallelRounds = warmUpRounds + 50
	crowdedClaims  = warmUp + 60
	tracedClaims   = 30
	nvmlClaims     = 16
	gatedClaims    = 8
	restarts       = 5
	wipes          = 5
)

// bencher is one run.
type bencher struct {
	Options
	client  kubernetes.Interface
	plugin  *Plugin
	devices []Device
	claims  *Claims
	report  *Report
}

// Run measures everything.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	o.API.QPS = -1
	o.API.ContentType, o.API.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(o.API)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("asking the API server who it is: %w", err)
	}
	b := &bencher{Options: o, client: client, report: &Report{
		Machine: machine(), Load: load(), Versions: "Kubernetes " + version.GitVersion + ", " + time.Now().Format(time.DateOnly),
	}}
	if b.devices, err = Published(ctx, client, o.Driver, o.Node); err != nil {
		return nil, err
	}
	if b.plugin, err = Register(ctx, filepath.Join(o.KubeletDir, "plugins_registry"), o.Driver); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.plugin.Close()) }()
	if b.claims, err = NewClaims(ctx, client, o.Driver, o.Node); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.claims.Remove(context.WithoutCancel(ctx))) }()
	return b.report, b.all(ctx)
}

// all runs every part in an order in which none disturbs the next: memory first, what restarts things last.
func (b *bencher) all(ctx context.Context) error {
	for _, part := range []struct {
		what string
		run  func(context.Context) error
	}{
		{"the idle plugin", b.idle},
		{"the machine", b.floor},
		{"one claim at a time", b.single},
		{"eight claims at once", b.parallel},
		{fmt.Sprintf("one claim beside %d others", Crowd), b.crowded},
		{"the plugin after that", b.used},
		{"system calls", b.syscalls},
		{"NVML calls", b.nvml},
		{"wiped ResourceSlices", b.wiped},
		{"API calls and restarts of a second plugin", b.second},
	} {
		start := time.Now()
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("measuring %s: %w", part.what, err)
		}
		fmt.Fprintf(b.Progress, "measured %s in %.1f s\n", part.what, time.Since(start).Seconds())
	}
	return nil
}

// quiet is how long a plugin has been left alone when it counts as idle: longer than it takes between two looks at its GPUs.
const quiet = 12 * time.Second

func (b *bencher) idle(ctx context.Context) (err error) {
	settle(ctx, quiet)
	b.report.Process.Idle, err = MemoryOf(b.plugin.PID)
	return err
}

func (b *bencher) used(context.Context) (err error) {
	b.report.Process.Used, err = MemoryOf(b.plugin.PID)
	return err
}

func (b *bencher) floor(ctx context.Context) error {
	claims, err := b.claims.Make(ctx, 1, b.devices)
	if err != nil {
		return err
	}
	b.report.Floor, err = MeasureFloor(ctx, filepath.Join(b.KubeletDir, "plugins"), b.client, claims[0])
	return err
}

func (b *bencher) single(ctx context.Context) error {
	claims, err := b.claims.Make(ctx, singleClaims, b.devices)
	if err != nil {
		return err
	}
	b.report.Single, err = OneByOne(ctx, b.plugin, b.claims, claims, len(b.devices))
	return err
}

func (b *bencher) parallel(ctx context.Context) error {
	claims, err := b.claims.Make(ctx, parallelRounds*len(b.devices), b.devices)
	if err != nil {
		return err
	}
	b.report.Parallel, err = AllAtOnce(ctx, b.plugin, b.claims, claims, len(b.devices))
	return err
}

// crowded measures while claims that only look at the GPUs stay prepared.
func (b *bencher) crowded(ctx context.Context) error {
	monitors := make([]Device, 0, len(b.devices))
	for _, d := range b.devices {
		monitors = append(monitors, Device{Pool: d.Pool, Name: d.Name + "-monitor", Admin: true})
	}
	others, err := b.claims.Make(ctx, Crowd, monitors)
	if err != nil {
		return err
	}
	for _, one := range others {
		if err := b.plugin.Prepare(ctx, one); err != nil {
			return err
		}
	}
	if err := b.claims.Reported(ctx, others...); err != nil {
		return err
	}
	claims, err := b.claims.Make(ctx, crowdedClaims, b.devices)
	if err != nil {
		return err
	}
	if b.report.Crowded, err = OneByOne(ctx, b.plugin, b.claims, claims, len(b.devices)); err != nil {
		return err
	}
	return b.plugin.Unprepare(ctx, others...)
}

func (b *bencher) syscalls(ctx context.Context) error {
	claims, err := b.claims.Make(ctx, tracedClaims, b.devices)
	if err != nil {
		return err
	}
	counted, err := CountSyscalls(ctx, b.plugin, claims)
	b.count(counted)
	return err
}

func (b *bencher) nvml(ctx context.Context) error {
	driver, err := OpenNVML(b.SimgpuRoot)
	if err != nil {
		return err
	}
	claims, err := b.claims.Make(ctx, nvmlClaims, b.devices)
	if err != nil {
		return err
	}
	n, err := CountNVML(ctx, driver, b.plugin, claims)
	// One call is one too many, whichever half of the claim made it.
	b.count(Costs{Prepare: Cost{NVML: n}, Unprepare: Cost{NVML: n}})
	return err
}

func (b *bencher) wiped(ctx context.Context) error {
	for range wipes {
		took, err := Wipe(ctx, b.client, b.Driver, b.Node)
		if err != nil {
			return err
		}
		b.report.Process.Wiped = append(b.report.Process.Wiped, took)
	}
	return nil
}

// count keeps the worst.
func (b *bencher) count(c Costs) {
	b.report.Costs.Prepare = b.report.Costs.Prepare.most(c.Prepare)
	b.report.Costs.Unprepare = b.report.Costs.Unprepare.most(c.Unprepare)
}

func (b *bencher) second(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp(b.KubeletDir, "bench-")
	if err != nil {
		return fmt.Errorf("making a directory for a second plugin: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	second, err := NewSecond(ctx, b.API, b.Binary, dir, b.Node)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, second.Close(context.WithoutCancel(ctx), b.client)) }()
	plugin, took, err := second.Start(ctx)
	if err != nil {
		return err
	}
	b.report.Process.FirstStart = took
	defer func() { err = errors.Join(err, plugin.Close()) }()
	devices, err := Published(ctx, b.client, second.Driver, b.Node)
	if err != nil {
		return err
	}
	claims, err := NewClaims(ctx, b.client, second.Driver, b.Node)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claims.Remove(context.WithoutCancel(ctx))) }()
	made, err := claims.Make(ctx, gatedClaims, devices)
	if err != nil {
		return err
	}
	counted, err := second.CountRequests(ctx, plugin, claims, made)
	if err != nil {
		return err
	}
	b.count(counted)
	if err := plugin.Prepare(ctx, made...); err != nil {
		return err
	}
	if err := claims.Reported(ctx, made...); err != nil {
		return err
	}
	return b.restart(ctx, second)
}

// afterStart is how long a restarted plugin is watched for API writes: its slices are compared within one sync delay.
const afterStart = 1500 * time.Millisecond

// restart kills the second plugin and starts it again; its claims stay prepared.
func (b *bencher) restart(ctx context.Context, second *Second) error {
	for range restarts {
		if err := second.Kill(); err != nil {
			return err
		}
		second.Gate.Take()
		plugin, took, err := second.Start(ctx)
		if err != nil {
			return err
		}
		settle(ctx, afterStart)
		requests := all(second.Gate.Take())
		b.report.Process.Restart = append(b.report.Process.Restart, took)
		b.report.Process.RestartWrites = max(b.report.Process.RestartWrites, requests.Writes)
		if err := plugin.Close(); err != nil {
			return err
		}
	}
	return nil
}
