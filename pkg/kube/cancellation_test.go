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

	"github.com/prism-gpu/prism/pkg/kube"
)

// hanging is a client of an API server that answers nothing until the test ends, and what is told of each request that arrives. Unlike a
// fake clientset it honours contexts.
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

// within waits for something that has to happen.
func within[T any](t *testing.T, what string, happens <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-happens:
	case <-time.After(patience):
		require.Fail(t, what+": nothing happened")
	}
	return value
}

func TestRead_ContextEndsWhileServerHangs_Returns(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(context.Context, kubernetes.Interface) error{
		"a claim": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := kube.Claims{Client: c}.Exists(ctx, claimRef)
			return err
		},
		"all claims": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := kube.Claims{Client: c}.Allocated(ctx, kube.AllocatedQuery{Driver: driverName, Limit: 250})
			return err
		},
		"taints": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := kube.Stored{Client: c, DriverName: driverName, NodeName: nodeName}.Tainted(ctx, leaving)
			return err
		},
		"a ConfigMap": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := kube.Configs{Client: c}.Get(ctx, "prism", "nodes")
			return err
		},
		"a label": func(ctx context.Context, c kubernetes.Interface) error {
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
		"the version": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := kube.Probe{Client: c}.CountsShares(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, arrived := hanging(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- read(ctx, client) }()
			within(t, "asking the server", arrived)
			cancel()
			assert.ErrorIs(t, within(t, "returning", ended), context.Canceled)
		})
	}
}

// What a claim's status should say is neither written nor given up, and no failure: the next process says it.
func TestStatuses_ContextEndsWhileServerHangs_LeftPending(t *testing.T) {
	t.Parallel()
	client, arrived := hanging(t)
	failed := make(chan error, 1)
	statuses := kube.NewStatuses(kube.StatusesOptions{
		Client: client, DriverName: driverName, OnError: func(_ kube.Claim, err error) { failed <- err },
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- statuses.Run(ctx) }()
	statuses.Ready(claimRef, nil)
	within(t, "asking the server", arrived)
	cancel()
	require.NoError(t, within(t, "returning", ended))
	assert.Equal(t, kube.StatusesStats{Pending: 1}, statuses.Stats())
	assert.Empty(t, failed)
}
