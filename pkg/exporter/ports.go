package exporter

import (
	"context"
	"net"
	"time"

	"github.com/prism-gpu/prism/pkg/allocation"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/metrics"
	"github.com/prism-gpu/prism/pkg/sampler"
)

// Sampler keeps what the driver says of each GPU up to date; *sampler.Sampler is the real one.
type Sampler interface {
	// Run waits for the driver and samples until the context ends. gpu.ErrDriverReplaced: only another process can sample.
	Run(ctx context.Context) error
	Snapshot() *metrics.Snapshot
	Status() sampler.Status
	// Measure adds fields to those of the node.
	Measure(fields ...metrics.Field)
	// Release lets go of a MIG device of a claim at once.
	Release(mig gpu.UUID, claimUID string, destroyed bool)
}

// Allocations keeps which containers have which devices up to date; *allocation.Tracker is the real one.
type Allocations interface {
	Run(ctx context.Context) error
	Allocations() *metrics.Allocations
	Sources() []allocation.Source
	OnReleasing(released func(mig gpu.UUID, claimUID string, destroyed bool))
	Exposed(root string, render func(claimUID string) []byte) error
}

// Adapters are what an exporter works on. All of them are required, but for Listening.
type Adapters struct {
	// Version is this program's.
	Version string
	// MayHaveGPU reports whether the node has an NVIDIA GPU.
	MayHaveGPU  func() (bool, error)
	Sampler     Sampler
	Allocations Allocations
	// After waits.
	After func(time.Duration) <-chan time.Time
	// Listening is called with each address that it listens on; nil for none.
	Listening func(net.Addr)
}
