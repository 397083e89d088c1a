// Package extension defines how the kubelet plugin runs requests of claims besides their devices. An extension consists of its own folder
// and one line in package plugin. It is a prepare.Extension, may be a driver.StatusExtension, and implements the interfaces below that it
// needs.
package extension

import (
	"context"

	"k8s.io/client-go/kubernetes"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/driver"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
)

// Extension is one extension of a plugin.
type Extension = prepare.Extension

// Connection is the cluster, and the records of the node.
type Connection struct {
	// Claims is the client of calls that a claim waits for, Background of all others.
	Claims, Background kubernetes.Interface
	// ClaimEvents are about claims; nil for none.
	ClaimEvents events.ClaimRecorder
	// Records returns this node's records, as far as they can be read.
	Records func() ([]*checkpoint.Record, error)
}

// Advertised returns the node and the layout that it advertises; the error says why that is not known yet.
type Advertised = func() (*gpu.Node, gpu.Layout, error)

// Availability is whether new claims may get devices of a type.
type Availability int

const (
	// Unknown means that the devices are not advertised yet.
	Unknown Availability = iota
	// Unavailable means that the devices are tainted, or withdrawn if the API server stores no taints.
	Unavailable
	// Available means that the devices are advertised without a taint.
	Available
)

// Attachment is the node as an extension with devices of its own finds it.
type Attachment struct {
	Advertised Advertised
	// SetAvailability sets whether new claims may get devices of a type.
	SetAvailability func(device gpu.DeviceType, availability Availability)
	// SetBusy keeps new claims from the devices of a type of these GPUs, instead of earlier ones: another program uses their hardware.
	SetBusy func(device gpu.DeviceType, gpus []gpu.UUID)
	// SetFailed keeps new claims from the devices of a type of these GPUs, instead of earlier ones: claims cannot use them until they are
	// restored. An extension calls it once in Attach; afterwards only in Lead, as one process restores devices.
	SetFailed func(device gpu.DeviceType, gpus []gpu.UUID)
	// Events are about the node.
	Events events.Recorder
	// Records are this node's; WithGPULock runs work that belongs to no claim under the lock of a GPU.
	Records     func() ([]*checkpoint.Record, error)
	WithGPULock func(ctx context.Context, id gpu.UUID, do func(ctx context.Context) error) error
}

// Stepper is an Extension with steps of its own.
type Stepper interface {
	Extension
	// Steps returns the steps by kind, for a node that advertises that. Events are about the node.
	Steps(advertised Advertised, recorder events.Recorder) map[string]prepare.Step
}

// Attacher is an Extension with devices of its own.
type Attacher interface {
	Extension
	// Attach is called once, before anything is advertised; Begin before the first publication, to learn necessary facts by then, as far as
	// that is quick; Renewed whenever the advertised devices may have changed.
	Attach(ctx context.Context, node Attachment)
	Begin(ctx context.Context)
	Renewed()
}

// Planner is an Extension that plans claims.
type Planner interface {
	Extension
	// Claim returns the extension that plans one claim, within the time of the call.
	Claim(ctx context.Context) claim.PlanExtension
}

// Connector is an Extension that needs the cluster.
type Connector interface {
	Extension
	// Connect is called once, before a claim is prepared. It may read objects that claims need, as far as that is quick.
	Connect(ctx context.Context, api Connection)
}

// Follower is an Extension that causes the statuses of claims to be written again.
type Follower interface {
	Extension
	// Follow returns Reports that replace the passed ones.
	Follow(reports driver.Reports) driver.Reports
	// Gone is called for a claim that was deleted, or is not prepared any more.
	Gone(claimUID string)
}

// Service is an Extension with work in the background.
type Service interface {
	Extension
	// Run works until the context ends. An error ends the plugin.
	Run(ctx context.Context) error
}

// Leader is an Extension with work that one process of the node does.
type Leader interface {
	Extension
	// Lead works until the context ends.
	Lead(ctx context.Context)
}

// Withdrawer is an Extension that has announced something under the driver's name.
type Withdrawer interface {
	Extension
	// Withdraw takes back the announcements under a former name.
	Withdraw(ctx context.Context, former *config.Plugin, client kubernetes.Interface) error
}

// All returns the extensions that implement an interface, in their order.
func All[T Extension](extensions []Extension) (parts []T) {
	for _, e := range extensions {
		if part, ok := e.(T); ok {
			parts = append(parts, part)
		}
	}
	return parts
}
