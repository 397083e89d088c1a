package sampler

import (
	"math"
	"time"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// round measures the GPU once and publishes the results. After an error it publishes nothing, so that values of two rounds are never mixed.
func (w *worker) round() error {
	lib, ctx := w.crew.s.opts.Library, w.calls()
	began := time.Now()
	plans, interval, limited := w.plans()
	w.interval = interval
	identity, devices, err := lib.MIGDevices(ctx, w.id)
	if err != nil {
		return w.undone(err)
	}
	w.identity = identity
	w.inspected(began, devices, plans)
	if err := w.abandon(devices); err != nil {
		return w.undone(err)
	}
	g := &metrics.GPU{Identity: identity, Began: began, Interval: interval, Up: true}
	list, err := lib.Processes(ctx, w.id, interval)
	if err != nil {
		return w.undone(err)
	}
	w.crew.s.dropped(list.Dropped)
	g.Processes, g.ProcessesSampled = list.Processes, list.Sampled
	g.ProcessesHidden = w.identify(g.Processes) || list.Hidden
	whole, at := w.of(plans, ""), time.Now()
	if err := lib.Values(ctx, w.id, whole.fields, &g.Values); err != nil {
		return w.undone(err)
	}
	baseline := w.baseline(WholeGPU, "", whole.claims)
	if identity.GPM {
		if err := lib.Sample(ctx, w.id, WholeGPU, whole.fields, baseline, &g.Values); err != nil {
			return w.undone(err)
		}
	}
	if baseline {
		w.last = nil
	}
	w.rates(&g.Values, at)
	if reasons, ok := g.Values.Get(metrics.FieldClockEventReasons); ok {
		g.ClockEvents = w.clocks.Add(at, reasons)
	}
	if err := w.sampleMIG(devices, plans); err != nil {
		return w.undone(err)
	}
	for i := range devices {
		g.MIGDevices = append(g.MIGDevices, &devices[i])
	}
	w.lost(nil)
	g.At = time.Now()
	w.crew.s.limit(w.id, limited)
	w.crew.s.publish(g)
	return nil
}

// undone ends a round with an error: its samples are no baseline for the next one.
func (w *worker) undone(err error) error {
	clear(w.targets)
	w.last = nil
	return err
}

// rates sets the growth per second of the GPU's counters, read at that time, since the last round, unless that round is no baseline.
func (w *worker) rates(values *metrics.Values, at time.Time) {
	if elapsed := at.Sub(w.lastAt); elapsed <= missed*w.interval {
		values.SetRates(w.last, elapsed)
	}
	w.last, w.lastAt = values, at
}

// limit stores the number of claims of a GPU whose interval is too short.
func (s *Sampler) limit(id gpu.UUID, limited int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limited[id] = limited
}

// sampleInstance samples a GPU instance that a claim uses. A sample makes the exporter a client of the instance: an administrator could not
// destroy an instance without a claim if it were sampled too.
func (w *worker) sampleInstance(instance int, devices string, claims []string, fields metrics.FieldSet, values *metrics.Values) error {
	lib := w.crew.s.opts.Library
	switch {
	case !w.identity.GPM:
		return nil
	case len(claims) > 0:
		return lib.Sample(w.calls(), w.id, instance, fields, w.baseline(instance, devices, claims), values)
	case w.targets[instance] != nil:
		delete(w.targets, instance)
		return lib.ReleaseSamples(w.calls(), w.id, instance)
	}
	return nil
}

// sampleMIG reads the values of the MIG devices. All MIG devices of a GPU instance share the same values.
func (w *worker) sampleMIG(devices []metrics.MIGDevice, plans map[gpu.UUID]*plan) error {
	lib, ctx := w.crew.s.opts.Library, w.calls()
	for first, next := 0, 0; first < len(devices); first = next {
		var fields metrics.FieldSet
		var uuids string
		var claims []string
		instance := devices[first].GPUInstance
		for next = first; next < len(devices) && devices[next].GPUInstance == instance; next++ {
			p := w.of(plans, devices[next].UUID)
			fields.AddSet(p.fields)
			uuids += string(devices[next].UUID) + devices[next].Profile
			claims = append(claims, p.claims...)
		}
		// A MIG device that will be destroyed does not wait for another sample.
		if err := w.release(); err != nil {
			return err
		}
		values := &devices[first].Values
		if !w.releasing(devices[first:next]) {
			if err := lib.MIGValues(ctx, w.id, &devices[first], fields); err != nil {
				return err
			}
			if err := w.sampleInstance(instance, uuids, claims, fields, values); err != nil {
				return err
			}
		}
		for i := first + 1; i < next; i++ {
			devices[i].Values = *values
		}
	}
	return nil
}

// identify sets the identity of each process by pid and start time. A utilization may belong to another process of the last round with the
// same pid. hidden: this pid namespace does not contain all processes, and none is identified; or a process is on the GPU in several rounds
// and not in /proc, so its pid belongs to another namespace.
func (w *worker) identify(processes []metrics.Process) (hidden bool) {
	proc := w.crew.s.opts.Processes
	hidden = proc != nil && proc.HidesProcesses()
	if len(processes) == 0 || proc == nil || hidden {
		w.starts, w.absent = nil, nil
		return hidden
	}
	return w.identifyEach(processes)
}

func (w *worker) identifyEach(processes []metrics.Process) (hidden bool) {
	pids := make([]uint32, len(processes))
	for i := range processes {
		pids[i] = processes[i].PID
	}
	known := w.crew.s.opts.Processes.Identify(pids)
	starts, absent := make(map[uint32]uint64, len(known)), map[uint32]bool{}
	for i := range processes {
		p := &processes[i]
		identity, found := known[p.PID]
		p.ProcessIdentity = identity
		p.ServesClients = p.ServesClients && identity.Server
		if !found {
			absent[p.PID] = true
			hidden = hidden || w.absent[p.PID]
			continue
		}
		if identity.Start == 0 {
			continue // it exits, which hides no other one
		}
		starts[p.PID] = identity.Start
		if before, ok := w.starts[p.PID]; ok && before != identity.Start {
			p.SM, p.Memory, p.Encoder, p.Decoder = math.NaN(), math.NaN(), math.NaN(), math.NaN()
		}
	}
	w.starts, w.absent = starts, absent
	return hidden
}
