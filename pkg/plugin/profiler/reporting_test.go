package profiler

import (
	"context"
	"fmt"
	"net"
	"strings"
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
	"k8s.io/klog/v2/ktesting"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// TestServe_ReportsPortInUse_ClaimsPrepared: claims are prepared even if reports cannot be read.
func TestServe_ReportsPortInUse_ClaimsPrepared(t *testing.T) {
	t.Parallel()
	other, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })
	n := profilingNode(t, "", "2023.4.4")
	n.cfg.Profiler.Endpoint, n.cfg.Profiler.Certificate = other.Addr().String(), t.TempDir()
	record := n.planned(t, &v1alpha1.ProfilerConfig{CaptureEnvironment: new(true)})
	ctx, stop := context.WithCancel(t.Context())
	logged := ""
	n.logger = funcr.New(func(_, args string) {
		logged = args
		require.NoError(t, n.Ensure(record))
		stop()
	}, funcr.Options{})
	require.NoError(t, n.serve(ctx), "an error ends the plugin")
	assert.Contains(t, logged, "address already in use")
}

// TestServeReports_Fails_ServedLater: a terminating version of the plugin may still use the port.
func TestServeReports_Fails_ServedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		began, calls, served := time.Now(), 0, time.Duration(0)
		(&Extension{}).serveAgain(ctx, func(context.Context) error {
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

// TestReportsCluster_Namespaces_AsTheAPIServerHasThem: a missing namespace is an answer, and errors are logged once.
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

// failingDisk fails to list directories a number of times.
type failingDisk struct {
	disk.Files
	failures int
}

func (d *failingDisk) List(dir string) ([]string, error) {
	if d.failures--; d.failures >= 0 {
		return nil, unix.EIO
	}
	return d.Files.List(dir)
}

// TestRun_DiskFailed_StoredLater: reports are stored after the disk works again.
func TestRun_DiskFailed_StoredLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		failing := &failingDisk{Files: disk.OS{}}
		s, err := store.Open(store.Options{Dir: dir, Files: failing, Now: time.Now, Follow: true, Changed: func(report.Report) {}})
		require.NoError(t, err)
		failing.failures = 2
		ctx, stop := context.WithCancel(t.Context())
		began, asked := time.Now(), time.Duration(0)
		p := &Extension{store: s, followed: newFollowed(), cluster: &cluster{records: func() ([]*checkpoint.Record, error) {
			asked = time.Since(began)
			stop()
			return nil, nil
		}}}
		p.Lead(ctx)
		assert.Equal(t, 2*storeRetry, asked)
	})
}

// TestIncompleteLog_Flood_Bounded: sessions that a container creates and abandons cannot flood the log, and the omitted ones are counted.
func TestIncompleteLog_Flood_Bounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		logs := logger.GetSink().(ktesting.Underlier).GetBuffer().String
		l := newIncompleteLog(logger)
		for range 10 * logBurst {
			l.log(report.Report{State: report.Lost})
			l.log(report.Report{State: report.Ready})
		}
		assert.Equal(t, logBurst, strings.Count(logs(), "Report is incomplete"))
		time.Sleep(time.Minute)
		l.log(report.Report{State: report.Raw})
		assert.Contains(t, logs(), fmt.Sprintf("notLogged=%d", 9*logBurst))
	})
}
