package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

// The simulated driver takes this time for a change, near the time of real drivers.
var nvmlTime = model.MIGLatency{
	CreateGPUInstance: 200 * time.Millisecond, CreateComputeInstance: 100 * time.Millisecond,
	DestroyComputeInstance: 100 * time.Millisecond, DestroyGPUInstance: 200 * time.Millisecond,
}

// creationTime and removalTime are the times for one MIG device.
var (
	creationTime = nvmlTime.CreateGPUInstance + nvmlTime.CreateComputeInstance
	removalTime  = nvmlTime.DestroyComputeInstance + nvmlTime.DestroyGPUInstance
)

// migProfile is the smallest profile of the measured GPU model; migCount of its devices fill a GPU.
const (
	migProfile = "1g.10gb"
	migCount   = 7
)

// Numbers of samples for MIG devices, whose every change takes the simulated time, and for time-sliced shares.
const (
	aloneClaims   = 3 * 8
	besideDevices = 14
	migWarmUp     = 2
	migRounds     = 3
	countedEach   = 8
	callSamples   = 1000
	driverSamples = 12
	shareRounds   = 4
	sharesEach    = 16
)

// makespanBudget is for devices of different GPUs at once, as a multiple of the driver time on one GPU.
const makespanBudget = 1.3

// migConfig advertises every GPU whole, time-sliced and as MIG devices.
const migConfig = "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\n" +
	"gpus: [{modes: [whole, mig, timeslice], timeSlice: {replicas: 4}}]\n"

const migTitle = "GPUs advertised whole, time-sliced and as MIG devices"

// migBench measures MIG devices and shares with a plugin that advertises them.
type migBench struct {
	*bencher

	driver NVML
	second *Second
	// whole are the GPUs, shared their time-sliced shares; parts are their MIG devices of the smallest profile, GPU by GPU.
	whole, shared []Device
	parts         [][]Device
	// call is the time of a driver call that only reads, driverAlone the time of the driver for one MIG device without a plugin.
	call        Samples
	driverAlone Latency
	// alone is for a MIG device on an empty GPU, beside for the last one that fits; with their costs.
	alone, beside           Latency
	aloneCosts, besideCosts Costs
	paced                   Floor
}

// mig measures MIG devices, and leaves GPUs without MIG devices.
func (b *bencher) mig(ctx context.Context) (err error) {
	driver, err := OpenNVML(b.SimgpuRoot)
	if err != nil {
		return err
	}
	config := filepath.Join(b.KubeletDir, "bench-mig.yaml")
	if err := os.WriteFile(config, []byte(migConfig), 0o600); err != nil {
		return fmt.Errorf("writing the configuration of a plugin: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(config)) }()
	return b.another(ctx, "mig.bench", func(s *Second, _ time.Duration) error {
		m := &migBench{bencher: b, driver: driver, second: s}
		if err := m.find(ctx); err != nil {
			return err
		}
		for _, part := range []func(context.Context) error{m.shares, m.enable, m.onEmptyGPU, m.besideOthers, m.allAtOnce, m.disable} {
			if err := part(ctx); err != nil {
				return errors.Join(err, driver.Take(model.MIGLatency{}))
			}
		}
		// This comes last, because the plugin takes these instances for an administrator's.
		if err := m.driverTime(); err != nil {
			return err
		}
		m.rows()
		return nil
	}, "--node-config="+config)
}

// find waits until all devices are published.
func (m *migBench) find(ctx context.Context) (err error) {
	published := func(w Wanted) (devices []Device) {
		if err == nil {
			devices, err = Published(ctx, m.client, m.second.Driver, m.Node, w)
		}
		return devices
	}
	m.whole = published(Wanted{Type: "gpu", Least: len(m.devices)})
	m.shared = published(Wanted{Type: "timeslice", Least: len(m.devices)})
	all := published(Wanted{Type: "mig", Profile: migProfile, Least: migCount * len(m.devices)})
	if err != nil {
		return err
	}
	m.parts = slices.Collect(slices.Chunk(all, len(all)/len(m.whole)))
	return nil
}

// first returns one MIG device of each GPU.
func (m *migBench) first() []Device {
	var devices []Device
	for _, of := range m.parts {
		devices = append(devices, of[0])
	}
	return devices
}

// enable turns MIG mode on for all GPUs, and disable turns it off.
func (m *migBench) enable(ctx context.Context) error { return m.once(ctx, m.first()) }

func (m *migBench) disable(ctx context.Context) error { return m.once(ctx, m.whole) }

// once prepares and unprepares a claim for each of the devices.
func (m *migBench) once(ctx context.Context, devices []Device) error {
	claims, err := m.second.Claims.Make(ctx, len(devices), devices)
	if err != nil {
		return err
	}
	return errors.Join(m.second.Plugin.Prepare(ctx, claims...), m.second.Claims.Reported(ctx, claims...), m.second.Plugin.Unprepare(ctx, claims...))
}

// cost counts the operations of claims for the devices, one at a time, and reports them.
func (m *migBench) cost(ctx context.Context, what string, limits Limits, devices []Device) (Costs, error) {
	claims, err := m.second.Claims.Make(ctx, 2*countedEach+gatedClaims, devices)
	if err != nil {
		return Costs{}, err
	}
	synced, err := CountSyscalls(ctx, m.second.Plugin, claims[:countedEach], 1)
	if err != nil {
		return Costs{}, err
	}
	called, err := CountNVML(ctx, m.driver, m.second.Plugin, claims[countedEach:2*countedEach])
	if err != nil {
		return Costs{}, err
	}
	// Writes for these claims must not count for the next ones.
	if err := m.second.Claims.Reported(ctx, claims[:2*countedEach]...); err != nil {
		return Costs{}, err
	}
	requested, err := m.second.CountRequests(ctx, claims[2*countedEach:], 1)
	costs := synced.most(called).most(requested)
	m.report.Add("operations for one claim: "+what+", "+migTitle, "", limits.rows(1, costs)...)
	return costs, err
}

// shares compares a whole GPU with a time-sliced share, alternating, while no GPU is in MIG mode; the plugin reads the mode.
func (m *migBench) shares(ctx context.Context) error {
	for _, one := range []struct {
		what    string
		devices []Device
	}{{"a whole GPU", m.whole}, {"a share of a GPU", m.shared}} {
		if _, err := m.cost(ctx, one.what, WholeLimits, one.devices); err != nil {
			return err
		}
	}
	var took [2]Latency
	for range shareRounds {
		for i, devices := range [][]Device{m.whole, m.shared} {
			claims, err := m.second.Claims.Make(ctx, migWarmUp+sharesEach, devices)
			if err != nil {
				return err
			}
			one, err := OneByOne(ctx, m.second.Plugin, claims, len(devices), migWarmUp, m.second.Claims.Reported)
			if err != nil {
				return err
			}
			took[i].add(one)
		}
	}
	title := "one claim at a time, " + migTitle
	m.report.Add(title, "a whole GPU", took[0].rows("prepare a whole GPU", "unprepare a whole GPU", Latency{})...)
	m.report.Add(title, "", took[1].rows("prepare a share of a GPU", "unprepare a share of a GPU", took[0])...)
	return nil
}

func (m *migBench) onEmptyGPU(ctx context.Context) (err error) {
	if m.aloneCosts, err = m.cost(ctx, "a MIG device", MIGLimits, m.first()); err != nil {
		return err
	}
	if m.alone, err = m.latency(ctx, aloneClaims, m.first()); err != nil {
		return err
	}
	one, err := m.second.Claims.Make(ctx, 1, m.first())
	if err != nil {
		return err
	}
	m.paced, err = MeasurePacedFloor(ctx, m.second.Dir, m.client, one[0])
	return err
}

// besideOthers fills a GPU except for one MIG device.
func (m *migBench) besideOthers(ctx context.Context) error {
	of := m.parts[0]
	others, err := m.second.Claims.Make(ctx, len(of)-1, of[1:])
	if err != nil {
		return err
	}
	if err := errors.Join(m.second.Plugin.Prepare(ctx, others...), m.second.Claims.Reported(ctx, others...)); err != nil {
		return err
	}
	if m.besideCosts, err = m.cost(ctx, fmt.Sprintf("a MIG device beside %d", len(of)-1), LastLimits, of[:1]); err != nil {
		return err
	}
	if m.beside, err = m.latency(ctx, besideDevices, of[:1]); err != nil {
		return err
	}
	return m.second.Plugin.Unprepare(ctx, others...)
}

// slowly runs measure while changes take the simulated time.
func (m *migBench) slowly(measure func() error) error {
	if err := m.driver.Take(nvmlTime); err != nil {
		return err
	}
	return errors.Join(measure(), m.driver.Take(model.MIGLatency{}))
}

func (m *migBench) latency(ctx context.Context, n int, devices []Device) (l Latency, err error) {
	claims, err := m.second.Claims.Make(ctx, migWarmUp+n, devices)
	if err != nil {
		return l, err
	}
	return l, m.slowly(func() error {
		l, err = OneByOne(ctx, m.second.Plugin, claims, len(devices), migWarmUp, m.second.Claims.Reported)
		return err
	})
}

// allAtOnce creates all MIG devices of all GPUs at once, and removes them.
func (m *migBench) allAtOnce(ctx context.Context) error {
	all := slices.Concat(m.parts...)
	claims, err := m.second.Claims.Make(ctx, (1+migRounds)*len(all), all)
	if err != nil {
		return err
	}
	return m.slowly(func() error {
		r, err := AllAtOnce(ctx, m.second.Plugin, claims, len(all), 1, m.second.Claims.Reported)
		own := time.Duration(len(all) / len(m.parts))
		rows := r.Last.rows("prepare: until the last answer", "unprepare: until the last answer",
			Latency{Samples{own * creationTime}, Samples{own * removalTime}})
		for i := range rows {
			rows[i].Budget = Ratio(makespanBudget)
		}
		rows = append(rows, r.CPU.rows("prepare: CPU time of the plugin", "unprepare: CPU time of the plugin", Latency{})...)
		m.report.Add(fmt.Sprintf("%d MIG devices at once, a call each: %d GPUs × %d", len(all), len(m.parts), own), "driver time on one GPU", rows...)
		return err
	})
}

// rows reports how long the kubelet waits for one MIG device, and the parts of Prism's share: the operations that are known to be
// necessary, at their price on this machine, and the rest. The budget of Prism's share is the time of a whole GPU after a pause of the same
// length, one durable write and the NVML calls.
func (m *migBench) rows() {
	title := fmt.Sprintf("one MIG device, the driver takes %d ms to create and %d ms to remove it", creationTime.Milliseconds(), removalTime.Milliseconds())
	m.report.Add(title, "", m.driverAlone.rows("the driver alone, to create it", "the driver alone, to remove it", Latency{})...)
	others := fmt.Sprintf(" beside %d others", len(m.parts[0])-1)
	for _, one := range []struct {
		what         string
		took, driver Samples
		whole        Samples
		cost         Cost
	}{
		{"prepare on an empty GPU", m.alone.Prepare, m.driverAlone.Prepare, m.gap.Prepare, m.aloneCosts.Prepare},
		{"prepare" + others, m.beside.Prepare, m.driverAlone.Prepare, m.gap.Prepare, m.besideCosts.Prepare},
		{"unprepare on an empty GPU", m.alone.Unprepare, m.driverAlone.Unprepare, m.gap.Unprepare, m.aloneCosts.Unprepare},
		{"unprepare" + others, m.beside.Unprepare, m.driverAlone.Unprepare, m.gap.Unprepare, m.besideCosts.Unprepare},
	} {
		share := one.took.without(one.driver.P50())
		row := Row{Name: one.what + ": Prism's share", Samples: share}
		if one.whole != nil { // nil in a run of this part alone
			row.Budget = Within(one.whole.P50() + m.paced.Durable.P50() + time.Duration(one.cost.NVML)*m.call.P50())
		}
		m.report.Add(title, "", Row{Name: one.what, Samples: one.took}, row)
		rest := share.P50()
		part := func(what string, took time.Duration) {
			rest -= took
			m.report.Add("parts of Prism's share", "", Row{Name: one.what + ": " + what, Samples: Samples{took}})
		}
		part("the call of the kubelet", m.floor.Call.P50())
		part("GETs of the claim, after a pause of the same length", time.Duration(one.cost.Reads)*m.paced.Get.P50())
		part("durable writes, after a pause of the same length", time.Duration(one.cost.Durable())*m.paced.Durable.P50())
		part("round trips of NVML calls to the simulated driver", time.Duration(one.cost.NVML)*m.call.P50())
		part("the rest", rest)
	}
}
