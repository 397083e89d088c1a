package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options select the measurements. The benchmark runs on the node itself: it uses its files, sockets and process ids.
type Options struct {
	// API is the cluster's API server, Node the name of this node.
	API  *rest.Config
	Node string
	// Driver is the installed driver.
	Driver string
	// KubeletDir is the kubelet's directory, CDIRoot contains the CDI specs, SimgpuRoot is the directory of the simulated NVIDIA driver.
	KubeletDir, CDIRoot, SimgpuRoot string
	// Binary is the program of the plugin, Example the program of dra-example-driver, for runs in their own process.
	Binary, Example string
	// Before is a directory with the programs of another build, and BeforeName its name in the tables.
	Before, BeforeName string
	// Load is simgpu's program that works on a GPU.
	Load string
	// Parts are the names of the parts to run; empty: all.
	Parts []string
	// Progress gets a line for every measured part.
	Progress io.Writer
}

// Numbers of samples: enough for a 99th percentile, and few enough for a short run.
const (
	singleClaims   = warmUp + 120
	warmUpRounds   = 3
	parallelRounds = warmUpRounds + 30
	tracedClaims   = 30
	nvmlClaims     = 16
	gatedClaims    = 8
	besideClaims   = 3
	wipes          = 5
)

// The budgets of times and memory. They are not asserted: they depend on the machine and its load.
const (
	parallelPrepareBudget   = 15 * time.Millisecond
	parallelUnprepareBudget = 6 * time.Millisecond
	memoryBudget            = 44 << 20
	ownMemoryBudget         = 12 << 20
)

// Titles of tables to which several parts add rows.
const (
	waits     = "time until the kubelet gets its answer"
	floorBase = "floor"
	process   = "the plugin's process, 8 GPUs"
)

// bencher is one run.
type bencher struct {
	Options

	client  kubernetes.Interface
	plugin  *Plugin
	devices []Device
	claims  *Claims
	report  *Report
	floor   Floor
	// whole is one claim for a whole GPU after the other, gap one some time after the last call.
	whole, gap Latency
	// costs are the maximum counts of one claim, burstCosts of BurstClaims at once.
	costs, burstCosts Costs
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
		return nil, fmt.Errorf("asking the API server for its version: %w", err)
	}
	b := &bencher{Options: o, client: client, report: &Report{Where: fmt.Sprintf("Kubernetes %s, %s. %s; load %s at start.",
		version.GitVersion, time.Now().Format(time.DateOnly), machine(), load())}}
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

// all runs every part, in an order in which none disturbs the next: memory first, restarts last.
func (b *bencher) all(ctx context.Context) error {
	for _, part := range []struct {
		name, what string
		run        func(context.Context) error
	}{
		{"idle", "the idle plugin", b.idle},
		{"floor", "the machine", b.machineFloor},
		// This needs few claims in the cluster: before a layout changes, a plugin reads all of them, a page of 250 every 5 s.
		{"change", "a change of the configuration", b.change},
		{"example", "dra-example-driver in the same run", b.pair},
		{"metadata", "files of device metadata", b.metadata},
		{"single", "one claim at a time", b.single},
		{"parallel", "eight claims at once", b.parallel},
		{"burst", fmt.Sprintf("%d claims at once", BurstClaims), b.burst},
		{"used", "the plugin after that", b.used},
		{"syscalls", "system calls", b.syscalls},
		{"nvml", "NVML calls", b.nvml},
		{"health", "an unhealthy GPU", b.health},
		{"wipe", "wiped ResourceSlices", b.wiped},
		{"second", "API calls and restarts of a second plugin", b.second},
		{"profile", "profiled claims", b.profile},
		{"mps", "MPS shares", b.mps},
		{"mig", "MIG devices", b.mig},
		{"exporter", "prism-exporter", b.exporter},
		{"tenants", "users of the API of reports", b.tenantLists},
	} {
		if len(b.Parts) > 0 && !slices.Contains(b.Parts, part.name) {
			continue
		}
		start := time.Now()
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("measuring %s: %w", part.what, err)
		}
		fmt.Fprintf(b.Progress, "measured %s (%s) in %.1f s\n", part.what, part.name, time.Since(start).Seconds())
	}
	return nil
}

func (b *bencher) pluginsDir() string { return filepath.Join(b.KubeletDir, "plugins") }

// quiet is how long a plugin must be without calls to count as idle: longer than the time between two inspections of its GPUs.
const quiet = 12 * time.Second

func (b *bencher) idle(ctx context.Context) error {
	pause(ctx, quiet)
	m, err := MemoryOf(b.plugin.PID)
	b.report.Add(process, "",
		Row{Name: "resident memory, idle", Count: int(m.Resident), Bytes: true, Budget: InMemory(memoryBudget)},
		Row{Name: "of which anonymous, idle", Count: int(m.Anonymous), Bytes: true, Budget: InMemory(ownMemoryBudget)})
	return err
}

func (b *bencher) used(context.Context) error {
	m, err := MemoryOf(b.plugin.PID)
	b.report.Add(process, "",
		Row{Name: "resident memory, after the measurements", Count: int(m.Resident), Bytes: true},
		Row{Name: "of which anonymous, after the measurements", Count: int(m.Anonymous), Bytes: true},
		Row{Name: "resident memory, peak", Count: int(m.Peak), Bytes: true})
	return err
}

func (b *bencher) machineFloor(ctx context.Context) error {
	claims, err := b.claims.Make(ctx, 1, b.devices)
	if err != nil {
		return err
	}
	b.floor, err = MeasureFloor(ctx, b.pluginsDir(), b.client, b.plugin, claims[0])
	b.report.Add("minimum for any driver", "", b.floor.rows()...)
	return err
}

func (b *bencher) single(ctx context.Context) error {
	claims, err := b.claims.Make(ctx, singleClaims, b.devices)
	if err != nil {
		return err
	}
	l, err := OneByOne(ctx, b.plugin, claims, len(b.devices), warmUp, b.claims.Reported)
	b.whole = l
	b.report.Add(waits, floorBase, l.rows("prepare one claim", "unprepare one claim", Latency{Prepare: b.floor.both()})...)
	return err
}

func (b *bencher) parallel(ctx context.Context) error {
	claims, err := b.claims.Make(ctx, parallelRounds*len(b.devices), b.devices)
	if err != nil {
		return err
	}
	r, err := AllAtOnce(ctx, b.plugin, claims, len(b.devices), warmUpRounds, b.claims.Reported)
	rows := r.Last.rows("prepare 8 at once on 8 GPUs, until the last answer", "unprepare 8 at once, until the last answer", Latency{})
	rows[0].Budget, rows[1].Budget = Within(parallelPrepareBudget), Within(parallelUnprepareBudget)
	b.report.Add(waits, floorBase, rows...)
	return err
}

func (b *bencher) syscalls(ctx context.Context) error {
	claims, err := b.claims.Make(ctx, tracedClaims, b.devices)
	if err != nil {
		return err
	}
	counted, err := CountSyscalls(ctx, b.plugin, claims, 1)
	b.costs = b.costs.most(counted)
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
	counted, err := CountNVML(ctx, driver, b.plugin, claims)
	b.costs = b.costs.most(counted)
	return err
}

func (b *bencher) wiped(ctx context.Context) error {
	var took Samples
	for range wipes {
		one, err := Wipe(ctx, b.client, b.Driver, b.Node)
		if err != nil {
			return err
		}
		took = append(took, one)
	}
	b.report.Add(process, "", Row{Name: "deleted ResourceSlices published again", Samples: took})
	return nil
}

// second runs the measurements that need a second plugin, and reports the counts, which lacked its API calls.
func (b *bencher) second(ctx context.Context) error {
	return b.another(ctx, "second.bench", func(s *Second, took time.Duration) error {
		b.report.Add(process, "", Row{Name: "start to first answer, new node", Samples: Samples{took}})
		devices, err := Published(ctx, b.client, s.Driver, b.Node, aGPU)
		if err != nil {
			return err
		}
		if err := b.gated(ctx, s, devices); err != nil {
			return err
		}
		if err := b.restarted(ctx, s, devices); err != nil {
			return err
		}
		b.report.Add("operations for one claim, alone and beside others", "", claimLimits.rows(1, b.costs)...)
		b.report.Add(burstTitle(len(devices)), "", slices.DeleteFunc(claimLimits.rows(BurstClaims, b.burstCosts), func(r Row) bool {
			return strings.HasSuffix(r.Name, "NVML calls") // not counted here
		})...)
		return nil
	})
}

// gated counts requests to the API server: of one claim at a time, and of many at once.
func (b *bencher) gated(ctx context.Context, s *Second, gpus []Device) error {
	for _, one := range []struct {
		into      *Costs
		n, atOnce int
		devices   []Device
	}{{&b.costs, gatedClaims, 1, gpus}, {&b.burstCosts, BurstClaims, BurstClaims, forBurst(gpus)}} {
		claims, err := s.Claims.Make(ctx, one.n, one.devices)
		if err != nil {
			return err
		}
		counted, err := s.CountRequests(ctx, claims, one.atOnce)
		if err != nil {
			return err
		}
		*one.into = one.into.most(counted)
	}
	return nil
}

// restarted kills the second plugin and starts it again while many claims are prepared. With those, a claim must not cost more requests to
// the API server than alone.
func (b *bencher) restarted(ctx context.Context, s *Second, gpus []Device) error {
	many, err := s.Claims.Make(ctx, BurstClaims, admins(gpus))
	if err != nil {
		return err
	}
	if err := errors.Join(s.Plugin.Prepare(ctx, many...), s.Claims.Reported(ctx, many...)); err != nil {
		return err
	}
	one, err := s.Claims.Make(ctx, besideClaims, gpus)
	if err != nil {
		return err
	}
	counted, err := s.CountRequests(ctx, one, 1)
	if err != nil {
		return err
	}
	b.costs = b.costs.most(counted)
	r, err := s.Restarts(ctx, len(many))
	b.report.Add(fmt.Sprintf("restart of a killed plugin, %d claims prepared", len(many)), "", r.rows()...)
	return err
}
