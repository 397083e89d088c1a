package allocation

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/backoff"
	"github.com/prism-gpu/prism/pkg/grpcread"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// The labels that kubelets set on containers.
const (
	labelNamespace = "io.kubernetes.pod.namespace"
	labelPod       = "io.kubernetes.pod.name"
	labelPodUID    = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"
)

// name identifies a container for the kubelet.
type name struct{ namespace, pod, container string }

// container is a listed container that has not exited.
type container struct {
	id, podUID string
	created    int64
}

// containers are the containers of the runtime's last list.
type containers struct {
	socket  runtimeSocket
	sources *sources
	// least is the minimum time between lists, again the wait before a missing container is queried again.
	least, again time.Duration

	// asking is held during a list.
	asking sync.Mutex
	due    backoff.Backoff

	mu  sync.Mutex
	ids map[string]bool
	// names is replaced, never modified.
	names  map[name]container
	absent map[string]time.Time
}

func newContainers(socket runtimeSocket, s schedule, report *sources) *containers {
	return &containers{
		socket: socket, sources: report, least: s.cri, again: s.absent, due: backoff.Backoff{First: s.cri, Max: s.criAway}, absent: map[string]time.Time{},
	}
}

// known returns the containers by name.
func (c *containers) known() map[name]container {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.names
}

// outermost returns the first id that belongs to a container. The ids come from nested cgroups, and containers choose the names inside
// their own cgroup, so an id counts only if no id before it can belong to a container; ask reports that the runtime must be queried first.
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

// ask lists the runtime's containers, unless the last list is too recent. Ids that are not listed belong to no container. It reports
// whether there may be new information.
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

// take stores a list of the runtime.
func (c *containers) take(all []listed, ids []string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids, c.names = map[string]bool{}, map[name]container{}
	for _, one := range all {
		c.ids[one.id] = true
		if one.exited {
			continue // it may belong to an earlier pod of the same name
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

// exited causes another query for containers of these names: the containers of the next pod of the same name are different.
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

// runtimeSocket locates the runtime's socket: the configured path on the host, if any, below hostRoot.
type runtimeSocket struct {
	set, hostRoot string
	// quiet limits the time without data, longest a whole list.
	quiet, longest time.Duration
}

func (s runtimeSocket) client(path string) grpcread.Client {
	return grpcread.Client{Socket: path, Quiet: s.quiet, Longest: s.longest}
}

// path returns the path of the socket, as this process sees it.
func (s runtimeSocket) path() (string, error) {
	return hostfs.New(s.hostRoot).RuntimeSocket(s.set)
}
