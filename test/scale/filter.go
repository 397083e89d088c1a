package scale

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// State describes which devices of a node are allocated.
type State string

// The states.
const (
	Empty       State = "empty"
	HalfWhole   State = "half of the GPUs allocated"
	FullWhole   State = "all GPUs allocated"
	HalfProfile State = "half full of 1g.10gb"
	FullProfile State = "full of 1g.10gb"
)

var states = []State{Empty, HalfWhole, FullWhole, HalfProfile, FullProfile}

// FilterRow is the cost of filtering one node for one pod.
type FilterRow struct {
	Layout      string
	RequestKind RequestKind
	State       State
	// Samples are sorted.
	Samples []time.Duration
	// Evaluations counts CEL expressions.
	Evaluations int
	// Found reports whether the node has such a device.
	Found bool
}

// P returns the q-quantile of the samples, 0 ≤ q ≤ 1.
func (r *FilterRow) P(q float64) time.Duration { return r.Samples[int(q*float64(len(r.Samples)-1))] }

// filterWarmUp is the number of samples that are discarded.
const filterWarmUp = 20

// Filter measures each request of each layout in each state.
func Filter(ctx context.Context, layouts []Layout, samples int) ([]FilterRow, error) {
	n, err := Simulated(ctx)
	if err != nil {
		return nil, err
	}
	var rows []FilterRow
	for i := range layouts {
		l := &layouts[i]
		for _, state := range states {
			s := newNode(l, "node", n)
			if reached, err := s.reach(ctx, state); err != nil {
				return nil, err
			} else if !reached {
				continue
			}
			for _, kind := range requestsInOrder(l) {
				row, err := s.filter(ctx, kind, state, samples)
				if err != nil {
					return nil, err
				}
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

// requestsInOrder lists the requests of a layout in the order of allRequests.
func requestsInOrder(l *Layout) []RequestKind {
	return slices.DeleteFunc(slices.Clone(allRequests), func(a RequestKind) bool { return l.Requests[a] == nil })
}

// reach brings the node into the state; false if the layout contains no such devices.
func (s *node) reach(ctx context.Context, state State) (bool, error) {
	profiles := s.layout.Requests[RequestProfile]
	if profiles == nil && (state == HalfProfile || state == FullProfile) {
		return false, nil
	}
	var err error
	switch state {
	case Empty:
	case HalfWhole:
		_, err = s.fill(ctx, s.layout.Requests[RequestGPU], GPUs/2)
	case FullWhole:
		_, err = s.fill(ctx, s.layout.Requests[RequestGPU], GPUs)
	case HalfProfile:
		_, err = s.fill(ctx, profiles, GPUs/2*smallestPerGPU)
	case FullProfile:
		_, err = s.fill(ctx, profiles, GPUs*smallestPerGPU)
	default:
		return false, fmt.Errorf("unknown state %q", state)
	}
	return err == nil, err
}

func (s *node) filter(ctx context.Context, kind RequestKind, state State, samples int) (row FilterRow, err error) {
	row = FilterRow{Layout: s.layout.Name, RequestKind: kind, State: state}
	request := s.layout.Requests[kind]
	if row.Evaluations, err = s.evaluations(ctx, request); err != nil {
		return row, err
	}
	for i := range filterWarmUp + samples {
		found, took, err := s.allocate(ctx, request)
		if err != nil {
			return row, err
		}
		row.Found = len(found) > 0
		if i >= filterWarmUp {
			row.Samples = append(row.Samples, took)
		}
	}
	slices.Sort(row.Samples)
	return row, nil
}

// Evaluations counts the CEL expressions that filtering evaluates for a layout in a state.
func Evaluations(ctx context.Context, l *Layout, n *gpu.Node, kind RequestKind, state State) (int, error) {
	s := newNode(l, "node", n)
	if reached, err := s.reach(ctx, state); err != nil || !reached {
		return 0, fmt.Errorf("layout %s cannot be %q: %w", l.Name, state, err)
	}
	return s.evaluations(ctx, l.Requests[kind])
}
