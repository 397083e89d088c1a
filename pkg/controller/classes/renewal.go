package classes

import (
	"context"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// annotationRenewed makes a write of an unchanged DeviceClass a change. Its value has no meaning.
const annotationRenewed = "prism.dev/renewed"

// renewal are the resource names whose DeviceClasses are written although they are unchanged. When a DeviceClass is deleted or loses its
// name, schedulers up to 1.37 drop the name even if another DeviceClass uses it, until that one is written again.
type renewal struct {
	all   bool
	names map[string]bool
}

func (n renewal) has(resource string) bool { return resource != "" && (n.all || n.names[resource]) }

// released are the names that DeviceClasses have lost. The first renewal covers all names, because earlier changes are unknown.
type released struct {
	mu    sync.Mutex
	once  bool
	names map[string]bool
}

func (r *released) add(resource string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names == nil {
		r.names = map[string]bool{}
	}
	r.names[resource] = true
}

// begin returns the pending renewal; end adds it again if it failed.
func (r *released) begin() renewal {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := renewal{all: !r.once, names: r.names}
	r.names = nil
	return n
}

func (r *released) end(n renewal, done bool) {
	if done {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.once = true
		return
	}
	for resource := range n.names {
		r.add(resource)
	}
}

type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

// classes requests a reconciliation for every change of a DeviceClass, and records the name that it lost.
func (r *Reconciler) classes() handler.EventHandler {
	enqueue := func(queue requests) { queue.Add(reconcile.Request{NamespacedName: r.ConfigMap}) }
	lost := func(old client.Object, now string) {
		if class, ok := old.(*resourceapi.DeviceClass); ok && resourceOf(class) != "" && resourceOf(class) != now {
			r.released.add(resourceOf(class))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, queue requests) { enqueue(queue) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue requests) {
			if class, ok := e.ObjectNew.(*resourceapi.DeviceClass); ok {
				lost(e.ObjectOld, resourceOf(class))
			}
			enqueue(queue)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue requests) {
			lost(e.Object, "")
			enqueue(queue)
		},
	}
}
