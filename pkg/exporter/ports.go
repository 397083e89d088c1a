package exporter

import (
	"context"
	"net"
	"time"

	"github.com/prism-gpu/prism/pkg/exporter/allocation"
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/exporter/sampler"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Sampler keeps the measured values of each GPU up to date; *sampler.Sampler implements it.
type Sampler interface {
	// Run waits for the driver and samples until the context ends. After gpu.ErrDriverReplaced only another process can sample.
	Run(ctx context.Context) error
	Snapshot() *metrics.Snapshot
	Status() sampler.Status
	// Measure adds fields to the node's fields.
	Measure(fields ...metrics.Field)
	// Release closes a claim's MIG device at once.
	Release(mig gpu.UUID, claimUID string, destroyed bool)
	// Suspend closes the driver and opens it after that time, or at once if it has passed.
	Suspend(until time.Time)
}

// Tracker keeps the devices of containers up to date; *allocation.Tracker implements it.
type Tracker interface {
	Run(ctx context.Context) error
	Allocations() *metrics.Allocations
	Sources() []allocation.Source
	OnReleasing(released func(mig gpu.UUID, claimUID string, destroyed bool))
	// OnReleased calls a function with the time until which the plugin has released the GPUs: at once, and after each change.
	OnReleased(released func(until time.Time))
	Exposed(root string, render func(claimUID string) []byte) error
}

// Adapters are the dependencies of an exporter. All of them are required, except Listening.
type Adapters struct {
	// Version is the version of this program.
	Version string
	// MayHaveGPU reports whether the node has an NVIDIA GPU.
	MayHaveGPU  func() (bool, error)
	Sampler     Sampler
	Allocations Tracker
	// After waits.
	After func(time.Duration) <-chan time.Time
	// Listening is called with each address on which the exporter listens; nil for none.
	Listening func(net.Addr)
}
