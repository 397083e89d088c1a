package profiler

import (
	"context"

	"k8s.io/klog/v2"
)

// ServeIdle answers controllers on a node without a GPU until the context ends: a node that does not answer is named in every list. If the
// node still has reports of a time with a GPU, it returns at once, and controllers name the node as silent: nothing here could delete these
// reports, for which the deletion of their namespace would wait.
func ServeIdle(ctx context.Context, o Options) error {
	if o.Config.Profiler.Endpoint == "" {
		return nil
	}
	if left, err := o.Files.List(o.Config.ProfilesDir()); err != nil || len(left) > 0 {
		return err
	}
	p := &Extension{cfg: o.Config, logger: klog.FromContext(ctx), followed: newFollowed()}
	if err := p.openStore(o); err != nil {
		return err
	}
	p.openSessions(o)
	return p.serve(ctx)
}
