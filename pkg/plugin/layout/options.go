package layout

import (
	"context"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// Options are the functions that a Controller needs.
type Options struct {
	// NodeName is the node's, and the name of the pool of its whole GPUs.
	NodeName  string
	Inventory *inventory.Inventory
	Config    ConfigPorts
	API       APIPorts
	// Records lists the claims' records. Its error is part of the refusals of claims, so it names no claim.
	Records func() ([]*checkpoint.Record, error)
	// Store keeps the advertised layouts over restarts.
	Store  Store
	Events events.Recorder
	// Modes apply to every GPU, in addition to its configured modes; nil for none. They are not saved.
	Modes []gpu.Mode
}

// ConfigPorts is the source of the node's configuration.
type ConfigPorts struct {
	// Read returns the node's configuration, nil if there is none.
	Read func(ctx context.Context) (*v1alpha1.NodeConfig, error)
	// Retryable reports whether an error of Read is transient, so that the configuration is not known yet.
	Retryable func(err error) bool
	// Watched: Reload is called whenever the source of Read changes.
	Watched bool
}

// APIPorts are the calls of the API server.
type APIPorts struct {
	// PartitionableDevices reports whether the API server stores shared counters, which keep devices of one GPU from being allocated
	// together. It is called only if GPUs are partitioned.
	PartitionableDevices func(ctx context.Context) (bool, error)
	// CountsShares reports whether the scheduler counts the allocated shares of a device when it decides about other devices of the GPU. It
	// is called after PartitionableDevices, if shared counters are stored.
	CountsShares func(ctx context.Context) (bool, error)
	// DeviceTaints reports whether the API server stores device taints. It is called when features are probed again.
	DeviceTaints func(ctx context.Context) (bool, error)
	// Probed is called after features have changed, or were probed again because a connection was lost. Its argument reports whether taints
	// are stored. The published devices are then to be published again. It must not block.
	Probed func(taints bool)
	// Tainted lists the stored devices of this node, and of each whether it is tainted as draining.
	Tainted func(ctx context.Context) (map[gpu.PoolDevice]bool, error)
	// Allocated reads a page of the cluster's claims; the Driver of the query is empty.
	Allocated func(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error)
}

// AtStart is the data that a process has read during its start. It is not read twice.
type AtStart struct {
	// Config is the node's configuration, or ConfigErr why it could not be read.
	Config    *v1alpha1.NodeConfig
	ConfigErr error
	// Records are the node's, nil if they could not be read.
	Records []*checkpoint.Record
}
