package plugin

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/mps"
)

// TestMain removes client-go's error handler that waits a millisecond: it compares the times of all tests, but each bubble uses its own
// clock.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] // which logs
	m.Run()
}

// outageNode is a node whose GPU is advertised whole and in MPS shares, as a ConfigMap says, in a bubble of fake time.
type outageNode struct {
	server   *fake.Clientset
	adapters Adapters
	cfg      *config.Plugin
	// down: the API server does not answer.
	down atomic.Bool
	mu   sync.Mutex
	// watches are the watches that the API server has begun.
	watches []watch.Interface
	// answer is how long the MPS service takes to answer, in nanoseconds.
	answer atomic.Int64
	// published contains the publications of the last process.
	published *publications
}

// publications are the published resources of a process, without repetitions.
type publications struct {
	ResourceSlices
	mu       sync.Mutex
	contents []resourceslice.DriverResources
}

func (p *publications) Publish(resources resourceslice.DriverResources) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.contents); n == 0 || !equality.Semantic.DeepEqual(p.contents[n-1], resources) {
		p.contents = append(p.contents, resources)
	}
	p.ResourceSlices.Publish(resources)
}

// count counts the publications.
func (p *publications) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.contents)
}

// slowService is an MPS service that takes its time.
type slowService struct {
	*askedService
	takes *atomic.Int64
}

func (s slowService) Probe(ctx context.Context) (problem string, err error) {
	select {
	case <-time.After(time.Duration(s.takes.Load())):
		return s.askedService.Probe(ctx)
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func newOutageNode(t *testing.T) *outageNode {
	t.Helper()
	n := &outageNode{server: fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0", UID: "node-uid"}}, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nodes"},
		Data: map[string]string{
			"default": "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus: [{modes: [whole, mps], mps: {replicas: 2}}]\n",
		},
	})}
	naming(n.server)
	refused := errors.New("connection refused")
	n.server.PrependReactor("*", "*", func(kubetesting.Action) (bool, runtime.Object, error) { return n.down.Load(), nil, refused })
	n.server.PrependWatchReactor("*", func(action kubetesting.Action) (bool, watch.Interface, error) {
		if n.down.Load() {
			return true, nil, refused
		}
		its, _ := action.(kubetesting.WatchActionImpl)
		w, err := n.server.Tracker().Watch(its.GetResource(), its.GetNamespace(), its.ListOptions)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.watches = append(n.watches, w)
		return true, w, err
	})
	n.cfg, n.adapters = oneGPUNode(t, n.server)
	n.cfg.NodeConfig = config.NodeConfig{Map: "ns/nodes", Name: "default"}
	n.adapters.Driver = func(string) inventory.Opener {
		return func(context.Context, hostfs.DriverRoot) (inventory.Session, error) { return h100{}, nil }
	}
	n.adapters.Services.MPS = func(string) mps.Daemons { return slowService{&askedService{}, &n.answer} }
	n.adapters.API = func(ctx context.Context) (API, error) {
		api := NewAPI(ctx, APIOptions{Config: n.cfg, Claims: n.server, Background: n.server, Events: &noted{}})
		n.published = &publications{ResourceSlices: api.Slices}
		api.Cluster, api.Slices = answering{supportive{api.Cluster}, &n.down}, n.published
		return api, nil
	}
	return n
}

// answering is a cluster with all features as long as the API server answers.
type answering struct {
	Cluster
	down *atomic.Bool
}

func (a answering) PartitionableDevices(ctx context.Context) (bool, error) {
	if a.down.Load() {
		return false, errors.New("connection refused")
	}
	return a.Cluster.PartitionableDevices(ctx)
}

func (a answering) Allocated(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error) {
	if a.down.Load() {
		return nil, errors.New("connection refused")
	}
	return a.Cluster.Allocated(ctx, query)
}

// start starts a plugin, which leads, and runs the parts of it that change ResourceSlices. Stop ends it.
func (n *outageNode) start(t *testing.T) (stop func()) {
	t.Helper()
	p, err := Build(t.Context(), n.cfg, n.adapters)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	p.Layout().Lead()
	for _, run := range []func(context.Context) error{
		p.Advertise, mpsOf(p).Run, p.layout.publish, p.layout.Conflicts.Run, p.Machine.Inventory.Run,
		func(ctx context.Context) error { return p.layout.config.Watch(ctx, p.layout.Controller.Reload) }, p.node.run,
	} {
		running.Go(func() { assert.NoError(t, run(ctx)) })
	}
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		assert.NoError(t, p.Close())
	})
	t.Cleanup(stop)
	return stop
}

// created starts a plugin on a node whose ResourceSlices another process has created. In fake time the controller would, after a minute,
// check for ever the ResourceSlices that it has created itself.
func (n *outageNode) created(t *testing.T) (stop func()) {
	t.Helper()
	stop = n.start(t)
	passes(30 * time.Second)
	stop()
	stop = n.start(t)
	passes(30 * time.Second)
	return stop
}

// stopAPI makes the API server stop answering, and ends its watches.
func (n *outageNode) stopAPI() {
	n.down.Store(true)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.watches {
		w.Stop()
	}
	n.watches = nil
}

// writes counts the writes of ResourceSlices by verb.
func (n *outageNode) writes() map[string]int {
	counts := map[string]int{}
	for _, action := range n.server.Actions() {
		if action.GetResource().Resource == "resourceslices" {
			if verb := action.GetVerb(); verb != "list" && verb != "watch" {
				counts[verb]++
			}
		}
	}
	return counts
}

// passes passes fake time, with all that is due in it.
func passes(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestAPIServerDown_NothingChanged_NoWrites: an outage of the API server by itself changes no ResourceSlice, whether the plugin was there before
// or started meanwhile, and however long the API server and the MPS service take to answer.
func TestAPIServerDown_NothingChanged_NoWrites(t *testing.T) {
	t.Parallel()
	for name, restarts := range map[string]bool{"the plugin stays": false, "it restarts": true} {
		for _, outage := range []time.Duration{time.Second, 10 * time.Second, 10 * time.Minute} {
			for _, answer := range []time.Duration{0, 300 * time.Millisecond, 900 * time.Millisecond} {
				t.Run(name+" "+outage.String()+" "+answer.String(), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						n := newOutageNode(t)
						n.answer.Store(int64(answer))
						stop := n.created(t)
						require.Equal(t, map[string][]string{"gpu-aaaaaaaa": {}, "gpu-aaaaaaaa-mps": {}}, taintsOf(t, n.server))
						before := n.writes()
						require.Equal(t, map[string]int{"create": 3}, before, "the pool of the node, the counters and the devices of the GPU")

						n.stopAPI()
						if restarts {
							stop()
							stop = n.start(t)
						}
						passes(outage)
						n.down.Store(false)
						passes(time.Minute)
						assert.Equal(t, before, n.writes())
						assert.Equal(t, 1, n.published.count(), "nothing that would have to be changed again, had it been written")
						stop()
					})
				})
			}
		}
	}
}

// TestPluginRestarts_NothingChanged_NoWrites, also if neither the API server nor the MPS service answers at once.
func TestPluginRestarts_NothingChanged_NoWrites(t *testing.T) {
	t.Parallel()
	for _, answer := range []time.Duration{0, 900 * time.Millisecond} {
		t.Run(answer.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newOutageNode(t)
				n.answer.Store(int64(answer))
				stop := n.created(t)
				before := n.writes()
				for range 5 {
					stop()
					stop = n.start(t)
					passes(time.Minute)
					assert.Equal(t, 1, n.published.count())
				}
				assert.Equal(t, before, n.writes())
				stop()
			})
		})
	}
}
