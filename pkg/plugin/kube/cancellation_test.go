package kube_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// hanging is a client of an API server that does not respond until the test ends, and a channel with the requests that arrive. Unlike a
// fake clientset, it honours contexts.
func hanging(t *testing.T) (kubernetes.Interface, <-chan string) {
	t.Helper()
	arrived, end := make(chan string, 16), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- r.Method + " " + r.URL.Path
		<-end
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(end) })
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	return client, arrived
}

// within receives from a channel, with a deadline.
func within[T any](t *testing.T, what string, happens <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-happens:
	case <-time.After(deadline):
		require.Fail(t, what+": deadline exceeded")
	}
	return value
}

func TestRead_ContextDoneWhileServerHangs_Returns(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(context.Context, kubernetes.Interface) error{
		"claim": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := kube.Claims{Client: c}.Exists(ctx, claimRef)
			return err
		},
		"all claims": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := kube.Claims{Client: c}.Allocated(ctx, kube.AllocatedQuery{Driver: driverName, Limit: 250})
			return err
		},
		"taints": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := kube.Stored{Client: c, DriverName: driverName, NodeName: nodeName}.Tainted(ctx, draining)
			return err
		},
		"ConfigMap": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := kube.Configs{Client: c}.Get(ctx, "prism", "nodes")
			return err
		},
		"label": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := kube.Configs{Client: c}.Label(ctx, nodeName, configLabel)
			return err
		},
		"counters": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := kube.Probe{Client: c, DriverName: driverName, NodeName: nodeName, NodeUID: "node-uid"}.PartitionableDevices(ctx)
			return err
		},
		"counters, without the node's UID": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := kube.Probe{Client: c, DriverName: driverName, NodeName: nodeName}.PartitionableDevices(ctx)
			return err
		},
		"version": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := kube.Probe{Client: c}.CountsShares(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, arrived := hanging(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			returned := make(chan error, 1)
			go func() { returned <- read(ctx, client) }()
			within(t, "a request", arrived)
			cancel()
			assert.ErrorIs(t, within(t, "a return", returned), context.Canceled)
		})
	}
}

// An interrupted write does not fail and is not dropped: the next process writes the status.
func TestStatuses_ContextDoneWhileServerHangs_LeftPending(t *testing.T) {
	t.Parallel()
	client, arrived := hanging(t)
	failed := make(chan error, 1)
	statuses := kube.NewStatuses(kube.StatusesOptions{
		Client: client, DriverName: driverName, OnError: func(_ kube.ClaimRef, err error) { failed <- err },
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	returned := make(chan error, 1)
	go func() { returned <- statuses.Run(ctx) }()
	statuses.Ready(claimRef, nil)
	within(t, "a request", arrived)
	cancel()
	require.NoError(t, within(t, "a return", returned))
	assert.Equal(t, kube.StatusesStats{Pending: 1}, statuses.Stats())
	assert.Empty(t, failed)
}
