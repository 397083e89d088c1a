package model

import (
	"math"
	"slices"
	"time"
)

// SampleHold says how long a GPU instance that a session has sampled cannot be destroyed.
type SampleHold string

// The holds.
const (
	HoldUntilFree     SampleHold = "free"     // until the sample is freed
	HoldUntilShutdown SampleHold = "shutdown" // until the session ends
)

func (h SampleHold) valid() bool { return h == "" || h == HoldUntilFree || h == HoldUntilShutdown }

// normal is empty for the default.
func (h SampleHold) normal() SampleHold {
	if h == HoldUntilFree {
		return ""
	}
	return h
}

// SetSampleHold sets how long samples that are taken from now on hold their GPU instance. It fails with InvalidArgument.
func (n *Node) SetSampleHold(hold SampleHold) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !hold.valid() {
		return InvalidArgument
	}
	n.hold = hold.normal()
	return nil
}

// gpmRefresh is how often the driver refreshes the counters that samples contain.
const gpmRefresh = 100 * time.Millisecond

// gpmSample is a sample of the counters of a GPU or of a GPU instance.
type gpmSample struct {
	gpu      *gpu         // nil: nothing was sampled
	instance *gpuInstance // nil: the whole GPU
	held     bool         // holds the instance
	at       time.Time
	seconds  float64
	sums     Quantities
}

// release releases the instance.
func (g *gpmSample) release() {
	if g.held {
		g.instance.sampled--
		g.held = false
	}
}

// AllocateSample allocates a sample of GPM, which exists until it is freed or the session ends.
func (s *Session) AllocateSample() (uint64, error) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	if err := s.alive(); err != nil {
		return 0, err
	}
	s.node.handles++
	if s.samples == nil {
		s.samples = map[uint64]*gpmSample{}
	}
	s.samples[s.node.handles] = &gpmSample{}
	return s.node.handles, nil
}

// FreeSample frees a sample; InvalidArgument for an unknown one.
func (s *Session) FreeSample(id uint64) error {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	sample := s.samples[id]
	if sample == nil {
		return InvalidArgument
	}
	if s.node.hold != HoldUntilShutdown {
		sample.release()
	} else if sample.held {
		s.held = append(s.held, sample)
	}
	delete(s.samples, id)
	return nil
}

// closeSamples releases all instances that the session has sampled.
func (s *Session) closeSamples() {
	for _, sample := range s.samples {
		sample.release()
	}
	for _, sample := range s.held {
		sample.release()
	}
	s.samples, s.held = nil, nil
}

// SupportsGPM reports whether the GPU, or the GPU of a MIG device, supports GPM.
func (s *Session) SupportsGPM(h Handle) (bool, error) {
	supported := false
	err := s.withParent(h, func(g *gpu) error {
		if h.kind() != 0 && s.instanceOf(g, h) == nil {
			return InvalidArgument
		}
		supported = g.board.HasGPM()
		return nil
	})
	return supported, err
}

// Sample samples a GPU, or the GPU instance of a MIG device. It fails with NotSupported before Hopper.
func (s *Session) Sample(h Handle, id uint64) error {
	return s.takeSample(h, id, func(g *gpu) (*gpuInstance, error) {
		if h.kind() == 0 {
			return nil, nil
		}
		if gi := s.instanceOf(g, h); gi != nil {
			return gi, nil
		}
		return nil, InvalidArgument
	})
}

// SampleInstance samples a GPU instance of a GPU by its id. It fails with NotFound if the session does not see it, and with NotSupported
// before Hopper and outside MIG mode.
func (s *Session) SampleInstance(h Handle, instance uint32, id uint64) error {
	return s.takeSample(h, id, func(g *gpu) (*gpuInstance, error) {
		switch {
		case h.kind() != 0:
			return nil, InvalidArgument
		case !g.mig.current:
			return nil, NotSupported
		}
		for _, gi := range g.mig.instances {
			if gi.id == instance && s.showsInstance(g, gi) {
				return gi, nil
			}
		}
		return nil, NotFound
	})
}

func (s *Session) takeSample(h Handle, id uint64, find func(*gpu) (*gpuInstance, error)) error {
	return s.withParent(h, func(g *gpu) error {
		if !g.board.HasGPM() {
			return NotSupported
		}
		gi, err := find(g)
		sample := s.samples[id]
		switch {
		case err != nil:
			return err
		case sample == nil:
			return InvalidArgument
		}
		g.advance(s.node.now())
		counted := &g.meter
		if gi != nil {
			counted = &gi.meter
		}
		s.holdInstance(sample, gi)
		sample.gpu, sample.instance, sample.at, sample.seconds, sample.sums = g, gi, g.at, counted.seconds, counted.sums
		return nil
	})
}

// holdInstance makes a sample hold an instance instead of its former one.
func (s *Session) holdInstance(sample *gpmSample, gi *gpuInstance) {
	if sample.held && sample.instance == gi {
		return
	}
	if sample.held && s.node.hold == HoldUntilShutdown {
		s.held = append(s.held, &gpmSample{instance: sample.instance, held: true})
		sample.held = false
	}
	sample.release()
	if gi != nil {
		gi.sampled++
		sample.instance, sample.held = gi, true
	}
}

// instanceOf returns the GPU instance of a MIG device that the session sees, nil if there is none.
func (s *Session) instanceOf(g *gpu, h Handle) *gpuInstance {
	gi, ci := g.mig.compute(func(ci *computeInstance) bool { return ci.device == h })
	if ci == nil || !s.shows(g, gi, ci) {
		return nil
	}
	return gi
}

func (s *Session) showsInstance(g *gpu, gi *gpuInstance) bool {
	if slices.Contains(s.capabilities, ConfigCapability) || slices.Contains(s.capabilities, MonitorCapability) {
		return true
	}
	for _, ci := range gi.compute {
		if s.shows(g, gi, ci) {
			return true
		}
	}
	return false
}

// GPMValue is one metric of GPM.
type GPMValue struct {
	Return Return
	Value  float64
}

// GPMMetrics computes metrics from two samples of one target. Metrics that the driver or the board does not support fail individually; if
// the samples are too close, the value is not a number. It fails with InvalidArgument for unknown samples, different targets or a wrong
// order.
func (s *Session) GPMMetrics(first, second uint64, ids []uint32) ([]GPMValue, error) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	if err := s.alive(); err != nil {
		return nil, err
	}
	a, b := s.samples[first], s.samples[second]
	if a == nil || b == nil || a.gpu == nil || a.gpu != b.gpu || a.instance != b.instance || b.at.Before(a.at) {
		return nil, InvalidArgument
	}
	values := make([]GPMValue, len(ids))
	for i, id := range ids {
		metric, known := gpmMetricOf(id)
		switch {
		case !known || metric.since > s.node.driver.version.Branch():
			values[i].Return = InvalidArgument
		case metric.value == nil || !metric.has(b):
			values[i].Return = NotSupported
		case b.at.Sub(a.at) < gpmRefresh:
			values[i].Value = math.NaN()
		default:
			values[i].Value = metric.value(a, b)
		}
	}
	return values, nil
}
