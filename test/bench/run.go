package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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
	// KubeletDir is the kubelet's, CDIRoot where CDI specs are, SimgpuRoot the directory of the simulated NVIDIA driver.
	KubeletDir, CDIRoot, SimgpuRoot string
	// Binary is the program of the plugin, for the runs that need one of their own.
	Binary string
	// Partner is the command that calls Partner with the directory that is put after it.
	Partner []string
	// Reader is the command that calls ReadClaims with the address that is put after it.
	Reader []string
	// Progress is told what is being measured.
	Progress io.Writer
}

// How much is measured: enough for a 99th percentile, little enough for a coffee.
const (
	singleClaims   = warmUp + 250
	warmUpRounds   = 3
	parallelRounds = warmUpRounds + 50
	crowdRounds    = 4
	crowdedClaims  = 16 // a round
	tracedClaims   = 30
	nvmlClaims     = 16
	gatedClaims    = 8
	besideClaims   = 3
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
	if b.devices, err = Published(ctx, client, o.Driver, o.Node, aGPU); err != nil {
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
		// While there are few claims: before a layout changes, a plugin reads those of the whole cluster, a page of 250 every 5 s.
		{"a change of the configuration", b.change},
		{"one claim at a time", b.single},
		{"eight claims at once", b.parallel},
		{fmt.Sprintf("%d claims at once", BurstClaims), b.burst},
		{fmt.Sprintf("one claim without and beside %d others", Crowd), b.crowded},
		{"the plugin after that", b.used},
		{"system calls", b.syscalls},
		{"NVML calls", b.nvml},
		{"a lock that two processes pass to and fro", b.handOff},
		{"wiped ResourceSlices", b.wiped},
		{"API calls and restarts of a second plugin", b.second},
		{fmt.Sprintf("a list of %d large claims", worstClaims), b.list},
		{"slices of GPUs", b.mig},
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
	b.report.Single, err = OneByOne(ctx, b.plugin, b.claims, claims, len(b.devices), warmUp)
	return err
}

func (b *bencher) parallel(ctx context.Context) error {
	claims, err := b.claims.Make(ctx, parallelRounds*len(b.devices), b.devices)
	if err != nil {
		return err
	}
	rounds, err := AllAtOnce(ctx, b.plugin, b.claims, claims, len(b.devices), warmUpRounds)
	b.report.Parallel = rounds.Last
	return err
}

// looks are the GPUs with admin access.
func looks(gpus []Device) []Device {
	devices := make([]Device, 0, len(gpus))
	for _, d := range gpus {
		devices = append(devices, Device{Pool: d.Pool, Name: d.Name, Admin: true})
	}
	return devices
}

// forBurst are the devices of the claims of a burst: every whole GPU once, then in turn with admin access.
func forBurst(gpus []Device) []Device {
	devices, shown := slices.Clone(gpus), looks(gpus)
	for i := len(devices); i < BurstClaims; i++ {
		devices = append(devices, shown[i%len(shown)])
	}
	return devices
}

func (b *bencher) burst(ctx context.Context) error {
	claims, err := b.claims.Make(ctx, (warmUpBursts+burstRounds+1)*BurstClaims, forBurst(b.devices))
	if err != nil {
		return err
	}
	counted, measured := claims[:BurstClaims], claims[BurstClaims:]
	if b.report.Burst, err = MeasureBurst(ctx, b.plugin, b.claims, measured); err != nil {
		return err
	}
	if err := b.report.Burst.floor(ctx, filepath.Join(b.KubeletDir, "plugins"), b.client, counted, len(b.devices)); err != nil {
		return err
	}
	b.report.Burst.Costs, err = CountSyscalls(ctx, b.plugin, counted, BurstClaims)
	return err
}

// crowded measures one more claim, in turn without others and while claims that only look at the GPUs stay prepared.
func (b *bencher) crowded(ctx context.Context) error {
	dirs := []string{filepath.Join(b.KubeletDir, "plugins", b.Driver), b.CDIRoot}
	measure := func(into *Beside) error {
		claims, err := b.claims.Make(ctx, len(b.devices)+crowdedClaims, b.devices)
		if err != nil {
			return err
		}
		one, err := MeasureBeside(ctx, b.plugin, b.claims, claims, len(b.devices), dirs...)
		into.again(one)
		return err
	}
	for range crowdRounds {
		if err := measure(&b.report.Alone); err != nil {
			return err
		}
		others, err := crowd(ctx, b.plugin, b.claims, b.devices)
		if err != nil {
			return err
		}
		if err := measure(&b.report.Crowded); err != nil {
			return err
		}
		if err := b.plugin.Unprepare(ctx, others...); err != nil {
			return err
		}
	}
	return nil
}

// crowd prepares claims that only look at the GPUs.
func crowd(ctx context.Context, p *Plugin, c *Claims, gpus []Device) ([]Claim, error) {
	others, err := c.Make(ctx, Crowd, looks(gpus))
	if err != nil {
		return nil, err
	}
	if err := p.Prepare(ctx, others...); err != nil {
		return nil, err
	}
	return others, c.Reported(ctx, others...)
}

func (b *bencher) handOff(ctx context.Context) (err error) {
	b.report.HandOff, err = HandOff(ctx, filepath.Join(b.KubeletDir, "plugins"), b.Partner...)
	return err
}

func (b *bencher) syscalls(ctx context.Context) error {
	claims, err := b.claims.Make(ctx, tracedClaims, b.devices)
	if err != nil {
		return err
	}
	counted, err := CountSyscalls(ctx, b.plugin, claims, 1)
	b.report.Costs = b.report.Costs.most(counted)
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
	b.report.Costs = b.report.Costs.most(Costs{Prepare: Cost{NVML: n}, Unprepare: Cost{NVML: n}})
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

// second measures what needs a plugin of its own.
func (b *bencher) second(ctx context.Context) error {
	return b.another(ctx, SecondOptions{Driver: "second.bench"}, func(second *Second, claims *Claims, took time.Duration) error {
		b.report.Process.FirstStart = took
		devices, err := Published(ctx, b.client, second.Driver, b.Node, aGPU)
		if err != nil {
			return err
		}
		if err := b.gated(ctx, second, claims, devices); err != nil {
			return err
		}
		return b.restarted(ctx, second, claims, devices)
	})
}

// another starts one more plugin with a name and a configuration of its own, tells how long that took, and ends it.
func (b *bencher) another(ctx context.Context, o SecondOptions, use func(s *Second, c *Claims, took time.Duration) error) (err error) {
	dir, err := os.MkdirTemp(b.KubeletDir, "bench-")
	if err != nil {
		return fmt.Errorf("making a directory for plugin %s: %w", o.Driver, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	claims, err := NewClaims(ctx, b.client, o.Driver, b.Node)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claims.Remove(context.WithoutCancel(ctx))) }()
	o.Binary, o.Dir, o.Node, o.Claims = b.Binary, dir, b.Node, claims.Made
	second, err := NewSecond(ctx, b.API, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, second.Close(context.WithoutCancel(ctx), b.client)) }()
	took, err := second.Start(ctx)
	if err != nil {
		return err
	}
	return use(second, claims, took)
}

// gated counts requests to the API server: of one claim at a time, and of many at once.
func (b *bencher) gated(ctx context.Context, s *Second, c *Claims, gpus []Device) error {
	claims, err := c.Make(ctx, gatedClaims, gpus)
	if err != nil {
		return err
	}
	counted, err := s.CountRequests(ctx, c, claims, 1)
	if err != nil {
		return err
	}
	b.report.Costs = b.report.Costs.most(counted)
	if claims, err = c.Make(ctx, BurstClaims, forBurst(gpus)); err != nil {
		return err
	}
	counted, err = s.CountRequests(ctx, c, claims, BurstClaims)
	b.report.Burst.Costs = b.report.Burst.Costs.most(counted)
	return err
}

// restarted kills the second plugin and starts it again beside a claim for each GPU, and beside a crowd. Beside that, a claim
// must not cost more requests to the API server than alone.
func (b *bencher) restarted(ctx context.Context, s *Second, c *Claims, gpus []Device) error {
	few, err := c.Make(ctx, len(gpus), gpus)
	if err != nil {
		return err
	}
	if err := errors.Join(s.Plugin.Prepare(ctx, few...), c.Reported(ctx, few...)); err != nil {
		return err
	}
	beside, err := s.Restarts(ctx, len(few))
	if err != nil {
		return err
	}
	b.report.Process.Restarts = append(b.report.Process.Restarts, beside)
	if err := s.Plugin.Unprepare(ctx, few...); err != nil {
		return err
	}

	many, err := crowd(ctx, s.Plugin, c, gpus)
	if err != nil {
		return err
	}
	one, err := c.Make(ctx, besideClaims, gpus)
	if err != nil {
		return err
	}
	counted, err := s.CountRequests(ctx, c, one, 1)
	if err != nil {
		return err
	}
	b.report.Costs = b.report.Costs.most(counted)
	beside, err = s.Restarts(ctx, len(many))
	b.report.Process.Restarts = append(b.report.Process.Restarts, beside)
	return err
}
