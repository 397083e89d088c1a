package profiler

import (
	"context"

	"k8s.io/klog/v2"
)

// ServeIdle serves the reports of a node without a GPU until the context ends: a node that does not answer is named in every list. It serves
// the reports that were stored while the node had a GPU, and changes none.
func ServeIdle(ctx context.Context, o Options) error {
	p := &Extension{cfg: o.Config, logger: klog.FromContext(ctx), followed: newFollowed()}
	if o.Config.Profiler.Endpoint == "" {
		return nil
	}
	if err := p.openStore(o); err != nil {
		return err
	}
	p.openSessions(o)
	return p.serve(ctx)
}
