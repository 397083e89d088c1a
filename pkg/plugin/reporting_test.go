package plugin

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
)

// profilesLead does the leading process's work with reports.
func profilesLead(ctx context.Context, p *Plugin) {
	for _, e := range extension.All[extension.Leader](p.Machine.Extensions) {
		if e.Kind() == claim.KindProfile {
			e.Lead(ctx)
		}
	}
}

// TestLead_Namespace_ReportsBelongToItsUID: the leading process finds out which namespace of its name the claim is in, and announces that the
// node keeps reports.
func TestLead_Namespace_ReportsBelongToItsUID(t *testing.T) {
	t.Parallel()
	n := profilingNode(t, "", "2023.4.4")
	created := metav1.NewTime(time.Now().Add(-time.Hour))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "ns-uid", CreationTimestamp: created}}
	_, err := n.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = n.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0", UID: "node-uid"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	p := n.build(t)
	require.NoError(t, prepared(t.Context(), p, n.profiledClaim(t, withEnvironment)))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		profilesLead(ctx, p)
		close(ended)
	}()
	index := filepath.Join(n.cfg.ProfilesDir(), claimUID, "index.json")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		raw, err := os.ReadFile(index)
		require.NoError(c, err)
		assert.Contains(c, string(raw), `"namespaceUID":"ns-uid"`)
		_, err = n.client.CoordinationV1().Leases("ns").Get(t.Context(), "gpu.prism.dev.n0", metav1.GetOptions{})
		require.NoError(c, err, "the announcement, in the namespace of the policy")
	}, time.Minute, 10*time.Millisecond)
	stop()
	<-ended
}

// TestLead_ProfilerTurnedOff_LeftReportsEnd: the plan of a claim that is unprepared goes, and the claims of before belong to a namespace with
// a UID, with which their reports end. A node that has none gets no directory.
func TestLead_ProfilerTurnedOff_LeftReportsEnd(t *testing.T) {
	t.Parallel()
	n := profilingNode(t, "", "2023.4.4")
	_, err := n.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "ns", UID: "ns-uid", CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour)),
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	lead := func() (stop func()) {
		p := n.build(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			profilesLead(ctx, p)
			close(ended)
		}()
		return func() {
			cancel()
			<-ended
		}
	}
	on := n.cfg.Profiler
	n.cfg.Profiler = config.Profiler{}
	lead()()
	require.NoDirExists(t, n.cfg.ProfilesDir())

	n.cfg.Profiler = on
	p := n.build(t)
	kept, gone := n.profiledClaim(t, withEnvironment), n.claim(t, "gone", 1)
	gone.UID, gone.Status.Allocation.Devices.Config = "6f0c1d2e-0000-4000-8000-00000000000b", n.profilerConfig(withEnvironment)
	require.NoError(t, prepared(t.Context(), p, kept))
	require.NoError(t, prepared(t.Context(), p, gone))

	n.cfg.Profiler = config.Profiler{}
	require.NoError(t, unprepared(t.Context(), n.build(t), gone))
	folder := filepath.Join(n.cfg.ProfilesDir(), string(gone.UID))
	require.DirExists(t, folder, "nothing of a profile is known to claims")
	stop := lead()
	defer stop()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		raw, err := os.ReadFile(filepath.Join(n.cfg.ProfilesDir(), claimUID, "index.json"))
		require.NoError(c, err)
		assert.Contains(c, string(raw), `"namespaceUID":"ns-uid"`)
		assert.NoDirExists(c, folder)
	}, time.Minute, 10*time.Millisecond)
}
