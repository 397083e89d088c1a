package plugin

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/layout"
	"github.com/prism-gpu/prism/pkg/plugin/mps"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// publishedShares is a publisher that publishes after each call.
type publishedShares struct {
	withheld, tainted bool
	// published has for each publication with MPS shares whether they were tainted.
	published []bool
}

func (p *publishedShares) Withhold(_ gpu.DeviceType, withheld bool) {
	p.withheld = withheld
	p.publish()
}

func (p *publishedShares) SetTaints(_ layout.TaintSource, rules []publish.TaintRule) {
	p.tainted = len(rules) > 0
	p.publish()
}

func (p *publishedShares) publish() {
	if !p.withheld {
		p.published = append(p.published, p.tainted)
	}
}

// TestPublishAvailability_EveryOrder_NoShareWithoutTaint: another publication may come between the two changes.
func TestPublishAvailability_EveryOrder_NoShareWithoutTaint(t *testing.T) {
	t.Parallel()
	const unknown, unavailable, usable = extension.Unknown, extension.Unavailable, extension.Available
	p := &publishedShares{}
	publishAvailability(p, gpu.TypeMPS, unknown)
	p.published = nil
	for _, all := range [][]extension.Availability{{unavailable, unknown, unavailable}, {unknown, unavailable}} {
		for _, availability := range all {
			publishAvailability(p, gpu.TypeMPS, availability)
		}
		assert.NotEmpty(t, p.published)
		assert.NotContains(t, p.published, false, "a share without its taint")
	}
	publishAvailability(p, gpu.TypeMPS, usable)
	assert.False(t, p.tainted)
	publishAvailability(p, gpu.TypeMPS, unknown)
	p.published = nil
	publishAvailability(p, gpu.TypeMPS, unavailable)
	assert.NotContains(t, p.published, false, "a share without its taint")
}

// TestBuild_MPSAdvertised_ServiceAskedBeforePublication: the first publication says whether shares can be used.
func TestBuild_MPSAdvertised_ServiceAskedBeforePublication(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	config := configMap("mps", gpu.IntervalLong)
	config.Data["default"] = "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus: [{modes: [mps], mps: {replicas: 2}}]\n"
	_, err := n.client.CoreV1().ConfigMaps("ns").Update(t.Context(), config, metav1.UpdateOptions{})
	require.NoError(t, err)
	service := &askedService{}
	n.adapters.Services.MPS = func(string) mps.Daemons { return service }
	p := n.build(t)
	assert.True(t, mpsOf(p).Watcher.Asked())
	assert.Equal(t, 1, service.calls())
	n.slices.leads = true
	share := n.slices.published()[n.device(0)+"-mps"]
	assert.NotEmpty(t, share.Name, "published at once")
	assert.Empty(t, share.Taints)
}

// leadLocks contain a lead lock that is released with a function.
type leadLocks struct {
	Locks
	release func()
}

func (l leadLocks) Lead(context.Context) (release func(), err error) { return l.release, nil }

// endedSlices closes a channel when nothing is published any more.
type endedSlices struct {
	ResourceSlices
	ended chan struct{}
}

func (s endedSlices) Run(ctx context.Context, dropped func(kube.DroppedFields)) error {
	defer close(s.ended)
	return s.ResourceSlices.Run(ctx, dropped)
}

// TestLead_ReconcilersEndFirst_ThenLockReleased: the next leader must not reconcile beside them.
func TestLead_ReconcilersEndFirst_ThenLockReleased(t *testing.T) {
	t.Parallel()
	p := newWired(t).build(t)
	published := make(chan struct{})
	p.leader.layout.slices = endedSlices{p.leader.layout.slices, published}
	var reconciling, released, beside atomic.Bool
	p.leader.background = append(p.leader.background, func(ctx context.Context) {
		reconciling.Store(true)
		<-ctx.Done()
		<-published
		for range 10_000 { // a release that does not wait comes meanwhile
			runtime.Gosched()
		}
		reconciling.Store(false)
	})
	p.leader.locks = leadLocks{p.leader.locks, func() {
		released.Store(true)
		beside.Store(reconciling.Load())
	}}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.leader.run(ctx) }()
	eventually(t, reconciling.Load, "it reconciles")
	stop()
	require.NoError(t, ended(t, done))
	assert.True(t, released.Load())
	assert.False(t, beside.Load(), "released while a reconciler ran")
}

// closingSession notes when the driver is closed.
type closingSession struct {
	inventory.Session
	closed *atomic.Bool
}

func (s closingSession) Close() error {
	s.closed.Store(true)
	return s.Session.Close()
}

// TestRun_WorkGoesOn_DriverClosedAfterIt: a call that still runs when the process is to exit may be changing a GPU.
func TestRun_WorkGoesOn_DriverClosedAfterIt(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	var closed atomic.Bool
	open := n.adapters.Driver
	n.adapters.Driver = func(root string) inventory.Opener {
		return func(ctx context.Context, at hostfs.DriverRoot) (inventory.Session, error) {
			session, err := open(root)(ctx, at)
			return closingSession{session, &closed}, err
		}
	}
	p, err := Build(t.Context(), n.cfg, n.adapters)
	require.NoError(t, err)
	works, ends, released := make(chan struct{}), make(chan struct{}), make(chan struct{})
	p.leader.background = append(p.leader.background, func(ctx context.Context) {
		close(works)
		<-ctx.Done()
		close(ends)
		<-released
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	n.register(t)
	<-works
	stop()
	<-ends
	for range 10_000 { // a close that does not wait comes meanwhile
		runtime.Gosched()
	}
	assert.False(t, closed.Load(), "closed while a part worked")
	close(released)
	require.NoError(t, ended(t, done))
	assert.True(t, closed.Load())
}
