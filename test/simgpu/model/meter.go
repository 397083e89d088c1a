package model

import "time"

// samplePeriod is the period in which the driver samples the utilization of processes, and sampleBuffer how long it keeps the samples.
const (
	samplePeriod = 200 * time.Millisecond
	sampleBuffer = time.Minute
)

// meter counts the activity of a GPU or GPU instance, up to the GPU's time at.
type meter struct {
	script  Script
	began   time.Time  // of the script
	seconds float64    // counted
	sums    Quantities // of levels: times seconds; of events: how many
	before  Quantities // events before the driver was loaded
}

// restart resets the meter, as a reload of the driver does.
func (m *meter) restart() {
	for q := range quantities {
		if quantities[q].kept {
			m.before[q] += m.sums[q]
		}
	}
	*m = meter{before: m.before}
}

// step returns the step of the script at a time, nil without one. start reports whether it begins then; ends is zero for never.
func (m *meter) step(at time.Time) (values map[Quantity]float64, start bool, ends time.Time) {
	since := at.Sub(m.began)
	i, began, end := m.script.at(since)
	if i < 0 {
		return nil, false, time.Time{}
	}
	if end != 0 {
		ends = m.began.Add(end)
	}
	return m.script.Steps[i].Values, began == since, ends
}

// add counts levels over a time, and the events of a step that begins with it.
func (m *meter) add(at time.Time, levels Quantities, seconds float64) {
	m.seconds += seconds
	values, start, _ := m.step(at)
	for q := range quantities {
		switch {
		case !quantities[q].event:
			m.sums[q] += levels[q] * seconds
		case start:
			m.sums[q] += values[Quantity(q)]
		}
	}
}

// levels returns the activity at a time: from the script, else derived from the work of the processes.
func (m *meter) levels(at time.Time, work Quantities, derive func(*Quantities)) Quantities {
	values, _, _ := m.step(at)
	if sm, scripted := values[QuantitySM]; scripted {
		work = workOf(sm)
	}
	derive(&work)
	for q, value := range values {
		if !quantities[q].event {
			work[q] = value
		}
	}
	return work
}

// workOf returns the quantities of processes that use this share of the multiprocessors.
func workOf(sm float64) Quantities {
	return Quantities{
		QuantityGraphics: sm, QuantitySM: sm, QuantityOccupancy: sm / 2, QuantityTensor: sm / 2, QuantityDRAM: sm / 2,
		QuantityFP32: sm / 4, QuantityInteger: sm / 8, QuantityPCIeTx: sm, QuantityPCIeRx: 2 * sm,
	}
}

// deriveBoard sets the quantities of the whole board for the work of its multiprocessors.
func (b Board) deriveBoard(v *Quantities) {
	busy, s := v[QuantitySM]/100, b.Sensors()
	v[QuantityPower] = (float64(b.Power.Idle) + float64(b.Power.Limit-b.Power.Idle)*busy) / 1000
	v[QuantityTemperature] = float64(b.Power.IdleTemperature) + 45*busy
	v[QuantityMemoryTemperature] = v[QuantityTemperature] + 6
	v[QuantitySMClock], v[QuantityMemoryClock] = float64(s.IdleClock), float64(s.IdleMemoryClock)
	v[QuantityVideoClock] = float64(s.VideoClock) * float64(s.IdleClock) / b.perfClock()
	if busy > 0 {
		v[QuantitySMClock], v[QuantityMemoryClock] = b.perfClock(), float64(s.MemoryClock)
		v[QuantityVideoClock] = float64(s.VideoClock)
	}
}

// perfClock returns the SM clock under load, in MHz.
func (b Board) perfClock() float64 { return float64(b.Product.PerfClockHz) / 1e6 }

// levels returns the activity of the GPU and of its GPU instances at a time.
func (g *gpu) levels(at time.Time) (whole Quantities, parts []Quantities) {
	whole = workOf(g.cuda.work())
	if g.mig.current {
		whole = Quantities{}
	}
	for _, gi := range g.mig.instances {
		part := gi.meter.levels(at, workOf(gi.work()), func(*Quantities) {})
		parts = append(parts, part)
		share := float64(gi.profile.Multiprocessors) / float64(g.board.Compute.Multiprocessors)
		for q, row := range quantities {
			switch {
			case row.instance && row.most == 100:
				whole[q] += part[q] * share
			case row.instance:
				whole[q] += part[q]
			}
		}
	}
	return g.meter.levels(at, whole, g.board.deriveBoard), parts
}

// boundary returns the next time at which a script of the GPU or of an instance continues, at most now.
func (g *gpu) boundary(now time.Time) time.Time {
	meters := []*meter{&g.meter}
	for _, gi := range g.mig.instances {
		meters = append(meters, &gi.meter)
	}
	for _, m := range meters {
		if _, _, ends := m.step(g.at); !ends.IsZero() && ends.Before(now) {
			now = ends
		}
	}
	return now
}

// advance counts until now. It must be called before the activity of the GPU changes, and before its counters are read.
func (g *gpu) advance(now time.Time) {
	for g.at.Before(now) {
		until := g.boundary(now)
		whole, parts := g.levels(g.at)
		seconds := until.Sub(g.at).Seconds()
		g.meter.add(g.at, whole, seconds)
		for i, gi := range g.mig.instances {
			gi.meter.add(g.at, parts[i], seconds)
		}
		g.sample(g.at, until)
		g.at = until
	}
}
