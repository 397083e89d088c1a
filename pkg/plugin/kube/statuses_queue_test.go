package kube_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

func TestStatuses_WritesFail_Retried(t *testing.T) {
	t.Parallel()
	var refusals atomic.Int64
	refusals.Store(3)
	w := newWriter(t, claimWith(result(driverName, "gpu-a")), func(clienttesting.Action) error {
		if refusals.Add(-1) >= 0 {
			return apierrors.NewTimeoutError("etcd has no leader", 0)
		}
		return nil
	})
	w.run(t)
	w.Ready(claimRef, []kube.Device{device("gpu-a")})
	w.drain(t)
	assert.Equal(t, kube.StatusesStats{Written: 1, Errors: 3}, w.Stats())
	require.Len(t, w.errors, 1, "only the first failure is reported")
	assert.ErrorContains(t, <-w.errors, "writing the status of ResourceClaim team/train: reading it: ")
}

// A conflict can mean a concurrent change or a new claim of that name: the next read decides.
func TestStatuses_ConflictWithReplacedClaim_Gone(t *testing.T) {
	t.Parallel()
	var once sync.Once
	var w *writer
	replacing := make(chan error, 1)
	w = newWriter(t, claimWith(result(driverName, "gpu-a")), func(a clienttesting.Action) (err error) {
		if a.GetVerb() == "patch" {
			once.Do(func() {
				replaced := claimWith(result(driverName, "gpu-a"))
				replaced.UID = "new"
				replacing <- w.server.Tracker().Update(claims, replaced, claimRef.Namespace)
				err = apierrors.NewConflict(schema.GroupResource{Resource: "resourceclaims"}, claimRef.Name, errors.New("uid"))
			})
		}
		return err
	})
	w.run(t)
	w.Ready(claimRef, []kube.Device{device("gpu-a")})
	w.drain(t)
	require.NoError(t, <-replacing)
	assert.Equal(t, kube.StatusesStats{Gone: 1, Errors: 1}, w.Stats())
}

// Of the reports during a slow write only the last one is written.
func TestStatuses_ReportsDuringWrite_LastOneWritten(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w := newWriter(t, claimWith(result(driverName, "gpu-a")), func(a clienttesting.Action) error {
		if a.GetVerb() == "patch" {
			once.Do(func() { close(entered); <-release })
		}
		return nil
	})
	w.run(t)
	w.Ready(claimRef, []kube.Device{device("gpu-a")})
	<-entered
	for i := range 100 {
		w.Failed(claimRef, []kube.Device{device("gpu-a")}, fmt.Sprintf("attempt %d failed.", i))
	}
	assert.Equal(t, 1, w.Stats().Pending)
	close(release)
	w.drain(t)
	assert.Equal(t, "attempt 99 failed.", ready(t, w.entries(t, driverName)["gpu-a"]).Message)
	assert.Equal(t, int64(2), w.patches.Load())
}

func TestStatuses_Drain_WaitsForPending(t *testing.T) {
	t.Parallel()
	w := newWriter(t, claimWith(result(driverName, "gpu-a")), nil)
	w.drain(t) // nothing pending
	w.Ready(claimRef, []kube.Device{device("gpu-a")})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the plugin is asked to stop"))
	require.EqualError(t, w.Drain(ctx), "writing the pending status of 1 ResourceClaims: the plugin is asked to stop")
	w.run(t)
	w.drain(t)
	assert.Equal(t, kube.StatusesStats{Written: 1}, w.Stats(), "reports made before Run are written")
}

func TestStatuses_ReportAfterRun_Ignored(t *testing.T) {
	t.Parallel()
	w := newWriter(t, claimWith(result(driverName, "gpu-a")), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, w.Run(ctx))
	w.Ready(claimRef, []kube.Device{device("gpu-a")})
	assert.Equal(t, kube.StatusesStats{}, w.Stats())
}

func TestStatuses_LongMessage_Truncated(t *testing.T) {
	t.Parallel()
	w := newWriter(t, claimWith(result(driverName, "gpu-a")), nil)
	w.run(t)
	w.Failed(claimRef, nil, strings.Repeat("ü", 4000))
	w.drain(t)
	assert.Equal(t, strings.Repeat("ü", 2048), ready(t, w.entries(t, driverName)["gpu-a"]).Message)
}

func TestStatuses_AllAttemptsFail_GivenUp(t *testing.T) {
	t.Parallel()
	w := newWriter(t, claimWith(result(driverName, "gpu-a")), func(clienttesting.Action) error {
		return apierrors.NewForbidden(claims.GroupResource(), claimRef.Name, errors.New("no verb patch"))
	})
	w.SetAttempts(3)
	w.run(t)
	w.Ready(claimRef, []kube.Device{device("gpu-a")})
	w.drain(t)
	assert.Equal(t, kube.StatusesStats{Errors: 3, GivenUp: 1}, w.Stats())
	require.ErrorContains(t, <-w.errors, "writing the status of ResourceClaim team/train: reading it: ")
	last := <-w.errors
	require.ErrorContains(t, last, "gave up after 3 attempts: writing the status of ResourceClaim team/train: ")
	assert.True(t, apierrors.IsForbidden(last))
	assert.Empty(t, w.errors)
}

// Reports within the delay are one write, and no request is sent before it has passed.
func TestStatuses_ReportsWithinDelay_OneWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		const delay = 150 * time.Millisecond
		var requested atomic.Int64
		w := newWriter(t, claimWith(result(driverName, "gpu-a")), func(clienttesting.Action) error {
			requested.CompareAndSwap(0, time.Now().UnixNano())
			return nil
		})
		w.SetDelay(delay)
		w.run(t)
		start := time.Now()
		w.Failed(claimRef, nil, "GPU is in use.")
		w.Ready(claimRef, []kube.Device{device("gpu-a")})
		w.drain(t)
		assert.Equal(t, delay, time.Unix(0, requested.Load()).Sub(start), "by the bubble's clock")
		assert.Equal(t, kube.StatusesStats{Written: 1}, w.Stats())
		assert.Equal(t, metav1.ConditionTrue, ready(t, w.entries(t, driverName)["gpu-a"]).Status)
	})
}
