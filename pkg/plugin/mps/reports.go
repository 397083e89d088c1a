package mps

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
)

// newReconciler builds the reconciler that keeps the control daemons of shared devices running.
func (e *Extension) newReconciler(ctx context.Context, node extension.Attachment) *Reconciler {
	recorder := node.Events
	return NewReconciler(ReconcilerOptions{
		Service: e.Service, BootID: e.options.Store.BootID, Records: node.Records, WithGPULock: node.WithGPULock,
		Report: Reports{
			Restarted: func(d Shared, cause string) {
				klog.FromContext(ctx).Info("Started an MPS control daemon again", "daemon", d.ID, "gpu", d.GPU, "reason", cause)
				recorder.Warn(events.MPSDaemonRestarted, events.ActionReconcile, fmt.Sprintf("The MPS control daemon %s of GPU %s was started again (%s); "+
					"processes of its %d shares that used the GPU have lost it", d.ID, d.GPU, cause, d.Shares))
			},
			ServerRestarted: func(d Shared) {
				klog.FromContext(ctx).Info("An MPS server exited and was started again", "daemon", d.ID, "gpu", d.GPU)
				recorder.Warn(events.MPSServerRestarted, events.ActionReconcile, fmt.Sprintf("The MPS server of GPU %s exited and was started again; "+
					"processes of its %d shares that used the GPU have lost it", d.GPU, d.Shares))
			},
			LimitsChanged: func(d Shared, found gpu.MPSLimitsInForce, settings gpu.MPSDaemonSpec) {
				klog.FromContext(ctx).Info("Restored limits of an MPS control daemon", "daemon", d.ID, "gpu", d.GPU, "found", found)
				recorder.Warn(events.MPSLimitsChanged, events.ActionReconcile, fmt.Sprintf("Limits of the MPS control daemon %s of GPU %s were changed by a "+
					"process and are restored to %s; clients that connected meanwhile keep other limits", d.ID, d.GPU, limits(settings)))
			},
			SingleUser: func(d Shared) {
				recorder.Warn(events.MPSSingleUser, events.ActionReconcile, fmt.Sprintf("The driver has no MPS server for all users: on GPU %s clients of "+
					"another user ID wait until those connected have exited", d.GPU))
			},
			Failed: func(d Shared, err error) {
				klog.FromContext(ctx).Error(err, "A GPU with MPS shares cannot be used", "daemon", d.ID, "gpu", d.GPU)
				recorder.Warn(events.MPSDaemonFailed, events.ActionReconcile, fmt.Sprintf("The MPS shares of GPU %s cannot be used: %v", d.GPU, err))
			},
			Unrestored: func(gpus []gpu.UUID) { node.SetFailed(gpu.TypeMPS, gpus) },
			Unread: func(err error) {
				klog.FromContext(ctx).Error(err, "MPS control daemons are not checked")
				recorder.Warn(events.MPSStateUnreadable, events.ActionReconcile, fmt.Sprintf("MPS control daemons that exit are not started again, and limits "+
					"that a process changes are not restored: %v", err))
			},
		},
	})
}

// limits words the settings of a daemon.
func limits(s gpu.MPSDaemonSpec) string {
	memory, threads := "no memory limit", "all SMs"
	if s.MemoryMiB > 0 {
		memory = fmt.Sprintf("%d MiB of memory", s.MemoryMiB)
	}
	if s.ActiveThreadPercentage > 0 {
		threads = fmt.Sprintf("%d %% of the threads", s.ActiveThreadPercentage)
	}
	return memory + " and " + threads
}
