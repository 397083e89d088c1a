package profiler

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
)

// Off is the extension of a node without the profiler: it refuses claims with a ProfilerConfig and undoes earlier ones. Their reports are
// deleted after their retention or with their namespace.
type Off struct {
	options Options
	reports store.Cluster
	records func() ([]*checkpoint.Record, error)
}

// Kind is claim.KindProfile.
func (*Off) Kind() string { return claim.KindProfile }

// Claim refuses profiles.
func (o *Off) Claim(context.Context) claim.PlanExtension {
	return claim.ProfileExtension{NodeName: o.options.Config.NodeName}
}

// Connect makes reports end with their namespace.
func (o *Off) Connect(ctx context.Context, api extension.Connection) {
	o.reports, o.records = newReportsCluster(o.options.Config, api.Background, klog.FromContext(ctx)), api.Records
}

// Lead deletes reports after their retention until the context ends.
func (o *Off) Lead(ctx context.Context) {
	left, err := openLeft(ctx, o.options)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Reports from before the profiler was turned off remain on the node until the plugin restarts")
	}
	if left != nil {
		left.cluster = &cluster{reports: o.reports, records: o.records}
		left.Lead(ctx)
	}
}

// openLeft opens the remaining reports; nil if there are none.
func openLeft(ctx context.Context, o Options) (*Extension, error) {
	switch left, err := o.Files.List(o.Config.ProfilesDir()); {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(left) == 0:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the profiles of the node: %w", err)
	}
	p := &Extension{cfg: o.Config, logger: klog.FromContext(ctx), followed: newFollowed()}
	return p, p.openStore(o)
}
