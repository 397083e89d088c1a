package allocation

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/backoff"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// The labels that kubelets give to containers.
const (
	labelNamespace = "io.kubernetes.pod.namespace"
	labelPod       = "io.kubernetes.pod.name"
	labelPodUID    = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"
)

// name names a container for the kubelet.
type name struct{ namespace, pod, container string }

// container is one that the runtime lists and that has not exited.
type container struct {
	id, podUID string
	created    int64
}

// containers are those that the runtime listed last.
type containers struct {
	socket  runtimeSocket
	sources *sources
	// least is the time between lists, again the time until a container that was not listed is asked for again.
	least, again time.Duration

	// asking is held during a list.
	asking sync.Mutex
	due    backoff.Backoff

	mu  sync.Mutex
	ids map[string]bool
	// names is replaced, never changed.
	names  map[name]container
	absent map[string]time.Time
}

func newContainers(socket runtimeSocket, s schedule, report *sources) *containers {
	return &containers{
		socket: socket, sources: report, least: s.cri, again: s.absent, due: backoff.Backoff{First: s.cri, Max: s.criAway}, absent: map[string]time.Time{},
	}
}

// known returns the container behind each name.
func (c *containers) known() map[name]container {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.names
}

// outermost returns the first of the ids that is a container's. They are of cgroups one in another, and containers name those in their own as
// they like, so an id counts only where each one before it is known to be no container's; ask says that the runtime has to be asked for that.
func (c *containers) outermost(ids []string, now time.Time) (id string, ask bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if c.ids[id] {
			return id, false
		}
		if at, absent := c.absent[id]; !absent || now.Sub(at) > c.again {
			return "", true
		}
	}
	return "", false
}

// ask lists the runtime's containers, unless that was done so shortly before that it is not due yet. Those of the ids that are not among them
// are no containers'. It reports whether more may be known now.
func (c *containers) ask(ctx context.Context, ids []string) bool {
	c.asking.Lock()
	defer c.asking.Unlock()
	if !c.due.Due(time.Now()) {
		return false
	}
	all, err := c.socket.list(ctx)
	now := time.Now()
	c.sources.note(SourceCRI, err)
	if err != nil {
		c.due.Defer(now)
		return false
	}
	c.due.Reset()
	c.due.Defer(now)
	c.take(all, ids, now)
	return true
}

// take takes in what the runtime lists.
func (c *containers) take(all []listed, ids []string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids, c.names = map[string]bool{}, map[name]container{}
	for _, one := range all {
		c.ids[one.id] = true
		if one.exited {
			continue // it may be of an earlier pod of the same name
		}
		if before, has := c.names[one.name]; !has || one.created > before.created {
			c.names[one.name] = container{id: one.id, podUID: one.podUID, created: one.created}
		}
	}
	for id, at := range c.absent {
		if now.Sub(at) > c.again {
			delete(c.absent, id)
		}
	}
	for _, id := range ids {
		if !c.ids[id] {
			c.absent[id] = now
		}
	}
}

// exited has the runtime asked again for containers of these names: the next pod of the same name has other ones.
func (c *containers) exited(names []name) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := maps.Clone(c.names)
	for _, n := range names {
		delete(c.ids, kept[n].id)
		delete(kept, n)
	}
	c.names = kept
}

// missing reports whether the runtime did not list a container of one of these names.
func (c *containers) missing(names []name) bool {
	known := c.known()
	return slices.ContainsFunc(names, func(n name) bool { return known[n].id == "" })
}

// runtimeSocket is where the runtime serves: the host's path that is set, if any, below hostRoot.
type runtimeSocket struct{ set, hostRoot string }

// path returns the path of the socket, as this process sees it.
func (s runtimeSocket) path() (string, error) {
	return hostfs.New(s.hostRoot).RuntimeSocket(s.set)
}
