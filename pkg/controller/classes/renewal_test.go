package classes

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// versions are the resource versions of the classes, by resource name.
func (w *cluster) versions() map[string]string {
	found := map[string]string{}
	for name, class := range w.classes() {
		found[name] = class.ResourceVersion
	}
	return found
}

// lose sends the controller the deletion of an unmanaged class of each resource name.
func (w *cluster) lose(resources ...string) {
	w.t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	for _, resource := range resources {
		class := unmanagedClass("other", resource, "true")
		w.Reconciler.classes().Delete(w.t.Context(), event.DeleteEvent{Object: &class}, queue)
	}
}

// A lost name is pending until its class is written, also after errors and conflicts, with a new leader, and if another name is lost in the
// meantime.
func TestReconcile_RenewalFailsPartly_RestRetried(t *testing.T) {
	const first, second = wholeGPU, "nvidia.com/gpu-2gb"
	refused := errors.New("the server is being upgraded")
	for name, c := range map[string]struct {
		err    error
		leader bool
		during bool
	}{
		"write fails":                    {err: refused},
		"conflict":                       {err: apierrors.NewConflict(resourceapi.Resource("deviceclasses"), "x", refused)},
		"new leader":                     {err: refused, leader: true},
		"another name is lost meanwhile": {err: refused, during: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, configs(map[string]string{"a": mpsConfig}))
			w.reconcile()
			before := w.versions()
			require.Len(t, before, 2)
			current, updates := w.Client, 0
			if c.leader {
				w.Reconciler = &Reconciler{Options: w.Options, Direct: w.Direct, Events: w.events}
			}
			w.Client = interceptor.NewClient(current.(client.WithWatch), interceptor.Funcs{
				Update: func(ctx context.Context, api client.WithWatch, object client.Object, options ...client.UpdateOption) error {
					if err := ctx.Err(); err != nil {
						return err
					}
					updates++
					if c.during && updates == 1 {
						w.lose(second)
					}
					if updates == 2 || c.during {
						return c.err
					}
					return api.Update(ctx, object, options...)
				},
			})
			switch {
			case c.leader:
			case c.during:
				w.lose(first)
			default:
				w.lose(first, second)
			}
			result, err := w.Reconcile(t.Context(), reconcile.Request{})
			if apierrors.IsConflict(c.err) {
				require.NoError(t, err)
				assert.Equal(t, cacheLagRetry, result.RequeueAfter)
			} else {
				require.ErrorIs(t, err, refused)
			}
			half := w.versions()
			assert.Equal(t, c.during, before[first] == half[first])
			assert.Equal(t, before[second], half[second], "the second write has failed")

			w.Client = current
			w.reconcile()
			renewed := w.versions()
			assert.NotEqual(t, before[first], renewed[first])
			assert.NotEqual(t, before[second], renewed[second], "the rest is retried")
			w.reconcile()
			assert.Equal(t, renewed, w.versions(), "a renewal is done once")
		})
	}
}
