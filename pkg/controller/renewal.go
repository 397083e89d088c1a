package controller

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

// annotationRenewed makes a class another one when it is written again. Its value says nothing.
const annotationRenewed = "prism.dev/renewed"

// renewal says of which resource names the classes are to be written again. When a class goes or loses its name, schedulers up to
// 1.37 forget the name, also where another class has it, until that class is written again.
type renewal struct {
	all   bool
	names map[string]bool
}

func (n renewal) has(resource string) bool { return resource != "" && (n.all || n.names[resource]) }

// released are the names that classes had and have no more. It begins with all: what happened before the process is not known.
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

// begin hands out what is to be renewed; end takes it back where that failed.
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

// classes asks for a reconciliation whenever a class changes, and notes the name that it had.
func (r *Reconciler) classes() handler.EventHandler {
	ask := func(queue requests) { queue.Add(reconcile.Request{NamespacedName: r.ConfigMap}) }
	lost := func(old client.Object, now string) {
		if class, ok := old.(*resourceapi.DeviceClass); ok && resourceOf(class) != "" && resourceOf(class) != now {
			r.released.add(resourceOf(class))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, queue requests) { ask(queue) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue requests) {
			if class, ok := e.ObjectNew.(*resourceapi.DeviceClass); ok {
				lost(e.ObjectOld, resourceOf(class))
			}
			ask(queue)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue requests) {
			lost(e.Object, "")
			ask(queue)
		},
	}
}
