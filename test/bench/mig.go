package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

// MIG is what slices of GPUs cost.
type MIG struct {
	// Alone is one slice at a time on a GPU that has no other, Beside on one that has all others that fit.
	Alone, Beside Latency
	// AtOnce is all slices of all GPUs, a call each; Slices is how many these are, PerGPU how many a GPU has.
	AtOnce         Rounds
	Slices, PerGPU int
	// Driver is the time of the simulated driver alone, Call that of a call that only reads.
	Driver Latency
	Call   Samples
	// Paced is the floor as it is when the machine does other things between one claim and the next: a durable write takes along
	// what others have written in the meantime.
	Paced Floor
	// Whole are the costs of a whole GPU that could also be cut, Slice those of a slice as in Alone, Last as in Beside.
	Whole, Slice, Last Costs
	// Turns are shares of GPUs beside whole ones.
	Turns Turns
}

// The time that the simulated driver takes for a change, near what drivers take.
var nvmlTime = model.MIGLatency{
	CreateGPUInstance: 200 * time.Millisecond, CreateComputeInstance: 100 * time.Millisecond,
	DestroyComputeInstance: 100 * time.Millisecond, DestroyGPUInstance: 200 * time.Millisecond,
}

// makingTime and removingTime are those of one slice.
var (
	makingTime   = nvmlTime.CreateGPUInstance + nvmlTime.CreateComputeInstance
	removingTime = nvmlTime.DestroyComputeInstance + nvmlTime.DestroyGPUInstance
)

// sliceProfile is the smallest profile of the GPU that is measured with.
const sliceProfile = "1g.10gb"

// sliceCount is how many of them fill a GPU.
const sliceCount = 7

// How much is measured of slices, whose every change takes the simulated time.
const (
	aloneClaims   = 5 * 8
	besideSlices  = 20
	slicesWarmUp  = 2
	sliceRounds   = 3
	countedEach   = 8
	callSamples   = 1000
	driverSamples = 20
)

// migConfig offers every GPU whole, in turns and in slices.
const migConfig = "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\n" +
	"gpus: [{modes: [whole, mig, timeslice], timeSlice: {replicas: 4}}]\n"

// slicer measures slices with a plugin that offers them.
type slicer struct {
	*MIG

	driver NVML
	plugin *Second
	claims *Claims
	// pace measures the floor with a pause before each sample.
	pace func(ctx context.Context, claim Claim) (Floor, error)
	// whole are the GPUs, shared the same in turns; cut are their slices of the smallest profile, GPU by GPU.
	whole, shared []Device
	cut           [][]Device
}

// mig measures slices, and leaves the GPUs uncut.
func (b *bencher) mig(ctx context.Context) error {
	driver, err := OpenNVML(b.SimgpuRoot)
	if err != nil {
		return err
	}
	return b.another(ctx, SecondOptions{Driver: "mig.bench", Config: migConfig}, func(s *Second, c *Claims, _ time.Duration) (err error) {
		m := &slicer{MIG: &b.report.MIG, driver: driver, plugin: s, claims: c, pace: func(ctx context.Context, claim Claim) (Floor, error) {
			return MeasurePacedFloor(ctx, s.Dir, b.client, claim)
		}}
		if err := m.find(ctx, b); err != nil {
			return err
		}
		// The mode is read of a GPU that is not in MIG mode, and changed on one that is.
		if m.Whole, err = m.cost(ctx, m.whole); err != nil {
			return err
		}
		for _, part := range []func(context.Context) error{m.turns, m.turnOn, m.alone, m.beside, m.atOnce, m.turnOff} {
			if err := part(ctx); err != nil {
				return errors.Join(err, driver.Take(model.MIGLatency{}))
			}
		}
		// Last, as the plugin takes these instances for an administrator's.
		return m.driverTime()
	})
}

// find waits until everything is on offer.
func (m *slicer) find(ctx context.Context, b *bencher) (err error) {
	if m.whole, err = Published(ctx, b.client, m.plugin.Driver, b.Node, Wanted{Type: "gpu", Least: len(b.devices)}); err != nil {
		return err
	}
	if m.shared, err = Published(ctx, b.client, m.plugin.Driver, b.Node, Wanted{Type: "timeslice", Least: len(b.devices)}); err != nil {
		return err
	}
	all, err := Published(ctx, b.client, m.plugin.Driver, b.Node, Wanted{Type: "mig", Profile: sliceProfile, Least: sliceCount * len(b.devices)})
	if err != nil {
		return err
	}
	m.Slices, m.PerGPU = len(all), len(all)/len(m.whole)
	m.cut = slices.Collect(slices.Chunk(all, m.PerGPU))
	return nil
}

// first has one slice of each GPU.
func (m *slicer) first() []Device {
	var devices []Device
	for _, of := range m.cut {
		devices = append(devices, of[0])
	}
	return devices
}

// turnOn brings all GPUs into MIG mode, and turnOff out of it.
func (m *slicer) turnOn(ctx context.Context) error { return m.once(ctx, m.first()) }

func (m *slicer) turnOff(ctx context.Context) error { return m.once(ctx, m.whole) }

// once prepares and unprepares a claim for each of the devices.
func (m *slicer) once(ctx context.Context, devices []Device) error {
	claims, err := m.claims.Make(ctx, len(devices), devices)
	if err != nil {
		return err
	}
	return errors.Join(m.plugin.Plugin.Prepare(ctx, claims...), m.plugin.Plugin.Unprepare(ctx, claims...))
}

// cost counts what claims for the devices cost, one at a time.
func (m *slicer) cost(ctx context.Context, devices []Device) (Costs, error) {
	claims, err := m.claims.Make(ctx, 2*countedEach+gatedClaims, devices)
	if err != nil {
		return Costs{}, err
	}
	synced, err := CountSyscalls(ctx, m.plugin.Plugin, claims[:countedEach], 1)
	if err != nil {
		return Costs{}, err
	}
	called, err := CountNVMLOfEach(ctx, m.driver, m.plugin.Plugin, claims[countedEach:2*countedEach])
	if err != nil {
		return Costs{}, err
	}
	asked, err := m.plugin.CountRequests(ctx, m.claims, claims[2*countedEach:], 1)
	return synced.most(called).most(asked), err
}

func (m *slicer) alone(ctx context.Context) (err error) {
	if m.Slice, err = m.cost(ctx, m.first()); err != nil {
		return err
	}
	if m.Alone, err = m.latency(ctx, aloneClaims, m.first()); err != nil {
		return err
	}
	one, err := m.claims.Make(ctx, 1, m.first())
	if err != nil {
		return err
	}
	m.Paced, err = m.pace(ctx, one[0])
	return err
}

// beside fills a GPU but for one slice.
func (m *slicer) beside(ctx context.Context) error {
	of := m.cut[0]
	others, err := m.claims.Make(ctx, len(of)-1, of[1:])
	if err != nil {
		return err
	}
	if err := errors.Join(m.plugin.Plugin.Prepare(ctx, others...), m.claims.Reported(ctx, others...)); err != nil {
		return err
	}
	if m.Last, err = m.cost(ctx, of[:1]); err != nil {
		return err
	}
	if m.Beside, err = m.latency(ctx, besideSlices, of[:1]); err != nil {
		return err
	}
	return m.plugin.Plugin.Unprepare(ctx, others...)
}

// latency measures one claim at a time while the driver takes its time.
func (m *slicer) latency(ctx context.Context, n int, devices []Device) (l Latency, err error) {
	claims, err := m.claims.Make(ctx, slicesWarmUp+n, devices)
	if err != nil {
		return l, err
	}
	if err := m.driver.Take(nvmlTime); err != nil {
		return l, err
	}
	l, err = OneByOne(ctx, m.plugin.Plugin, m.claims, claims, len(devices), slicesWarmUp)
	return l, errors.Join(err, m.driver.Take(model.MIGLatency{}))
}

// atOnce makes all slices of all GPUs at once, and removes them.
func (m *slicer) atOnce(ctx context.Context) error {
	claims, err := m.claims.Make(ctx, (1+sliceRounds)*m.Slices, slices.Concat(m.cut...))
	if err != nil {
		return err
	}
	if err := m.driver.Take(nvmlTime); err != nil {
		return err
	}
	m.AtOnce, err = AllAtOnce(ctx, m.plugin.Plugin, m.claims, claims, m.Slices, 1)
	return errors.Join(err, m.driver.Take(model.MIGLatency{}))
}

// CountNVMLOfEach returns how many NVML calls the plugin makes for one claim: the fewest of several, one after the other, as the
// plugin looks at its GPUs in between.
func CountNVMLOfEach(ctx context.Context, driver NVML, p *Plugin, claims []Claim) (costs Costs, err error) {
	fewest := func(into *int, call func(context.Context, ...Claim) error, claim Claim, first bool) error {
		before, err := driver.Calls(p.PID)
		if err != nil {
			return err
		}
		if err := call(ctx, claim); err != nil {
			return err
		}
		after, err := driver.Calls(p.PID)
		if n := after - before; first || n < *into {
			*into = n
		}
		return err
	}
	for i, claim := range claims {
		if err := fewest(&costs.Prepare.NVML, p.Prepare, claim, i == 0); err != nil {
			return costs, fmt.Errorf("counting NVML calls: %w", err)
		}
		if err := fewest(&costs.Unprepare.NVML, p.Unprepare, claim, i == 0); err != nil {
			return costs, fmt.Errorf("counting NVML calls: %w", err)
		}
	}
	return costs, nil
}
