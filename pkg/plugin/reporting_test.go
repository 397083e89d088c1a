package plugin

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/profiler/store"
)

// TestServe_ReportsPortInUse_ClaimsPrepared: reports that cannot be read keep no claim from being prepared.
func TestServe_ReportsPortInUse_ClaimsPrepared(t *testing.T) {
	t.Parallel()
	other, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })
	n := profilingNode(t, "", "2023.4.4")
	n.cfg.Profiler.Endpoint, n.cfg.Profiler.Certificate = other.Addr().String(), t.TempDir()
	p := n.build(t)
	ctx, stop := context.WithCancel(t.Context())
	r := reporting{profiles: p.Machine.State.profiles}
	logged := ""
	r.logger = funcr.New(func(_, args string) {
		logged = args
		require.NoError(t, prepared(t.Context(), p, n.profiledClaim(t, withEnvironment)))
		stop()
	}, funcr.Options{})
	require.NoError(t, r.serve(ctx), "an error ends the plugin")
	assert.Contains(t, logged, "address already in use")
}

// TestServeReports_Fails_ServedLater: the port may be that of a version of the plugin that is about to exit.
func TestServeReports_Fails_ServedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		began, calls, served := time.Now(), 0, time.Duration(0)
		reporting{profiles: &profiles{}}.serveAgain(ctx, func(context.Context) error {
			if calls++; calls <= 2 {
				return unix.EADDRINUSE
			}
			served = time.Since(began)
			stop()
			return nil
		})
		assert.Equal(t, 2*serveRetry, served)
	})
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
		p.leader.profiles(ctx)
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
			p.leader.profiles(ctx)
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

// TestReportsCluster_Namespaces_AsTheAPIServerHasThem: none is an answer, and what is no answer is logged once.
func TestReportsCluster_Namespaces_AsTheAPIServerHasThem(t *testing.T) {
	t.Parallel()
	created := time.Unix(1, 0)
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "uid", CreationTimestamp: metav1.NewTime(created)}})
	logged := 0
	read := newReportsCluster(&config.Plugin{}, client, funcr.New(func(string, string) { logged++ }, funcr.Options{})).Namespace
	for name, want := range map[string]store.Namespace{"ns": {UID: "uid", Created: created}, "other": {}} {
		found, err := read(t.Context(), name)
		require.NoError(t, err)
		assert.Equal(t, want, found)
	}
	assert.Zero(t, logged)
	client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, unix.ECONNREFUSED })
	for range 3 {
		_, err := read(t.Context(), "ns")
		require.ErrorIs(t, err, unix.ECONNREFUSED)
	}
	assert.Equal(t, 1, logged)
}
