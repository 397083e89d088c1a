package plugin

import (
	"context"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
)

// startable refuses claims whose containers would not start: in a user namespace runc ignores the host path of a device node, and the
// driver may have nodes that the host's /dev lacks.
type startable struct {
	prepare.Planner
	// driverNode returns a device node that is in the driver's own dev/ alone, of these GPUs; "" without one.
	driverNode func(gpus []gpu.UUID) string
	// pod returns a pod of the claim with a user namespace, which runc starts; "" without one.
	pod func(ctx context.Context, rc *resourceapi.ResourceClaim) (string, error)
}

// podTimeout bounds the time that a claim waits for its pods.
const podTimeout = 2 * time.Second

// Resolve implements prepare.Planner.
func (s startable) Resolve(ctx context.Context, rc *resourceapi.ResourceClaim) (*claim.Plan, error) {
	plan, err := s.Planner.Resolve(ctx, rc)
	if err == nil && len(plan.Results) > 0 {
		err = s.check(ctx, rc, plan)
	}
	if err != nil {
		return nil, err
	}
	return plan, nil
}

func (s startable) check(ctx context.Context, rc *resourceapi.ResourceClaim, plan *claim.Plan) error {
	gpus := make([]gpu.UUID, 0, len(plan.Results))
	for i := range plan.Results {
		gpus = append(gpus, plan.Results[i].Device.Parent().UUID) // empty of the monitor
	}
	node := s.driverNode(gpus)
	if node == "" {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, podTimeout)
	defer stop()
	pod, err := s.pod(ctx, rc)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Whether pods have user namespaces is not known: their containers may not start", "claim", klog.KObj(rc))
		return nil
	}
	if pod == "" {
		return nil
	}
	return &claim.Refusal{
		Cause: fmt.Sprintf("pod %s has hostUsers: false, for which runc takes device nodes from /dev of the node, and that has none of the same device as %s", pod, node),
		Fix:   "create it there with nvidia-modprobe, or leave hostUsers out of the pod, and recreate the pod",
	}
}

// crun asks the container runtime whether crun starts the containers of a handler.
func (a Adapters) crun(ctx context.Context, handler string) (bool, error) {
	if a.Runtime == nil {
		return false, nil
	}
	return a.Runtime.Crun(ctx, handler)
}
