package plugin

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// register does the kubelet's part once the plugin's registration socket exists.
func (n *wired) register(t *testing.T) {
	t.Helper()
	registerAt(t, n.cfg.Paths.KubeletRegistrar)
}

// registerAt is register for the plugin with this directory of registration sockets.
func registerAt(t *testing.T, directory string) {
	t.Helper()
	var socket string
	eventually(t, func() bool {
		found, err := filepath.Glob(filepath.Join(directory, "*.sock"))
		if err != nil || len(found) == 0 {
			return false
		}
		socket = found[0]
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
		return err == nil && connection.Close() == nil
	}, "the plugin serves the kubelet")
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = connection.Close() }()
	_, err = registerapi.NewRegistrationClient(connection).
		NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true})
	require.NoError(t, err)
}

// TestRun_NotRegistered_NothingPublished: a pod that waits for the devices would be sent to a kubelet that refuses its claim. Until the limit
// nothing is published, however long the machine takes for the rest.
func TestRun_NotRegistered_NothingPublished(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	start := time.Now()
	n.start(t)
	eventually(t, func() bool { return len(n.slices.published()) > 0 }, "the leader publishes")
	assert.GreaterOrEqual(t, time.Since(start), registrationLimit)
}

func TestRun_Registered_Published(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	n.start(t)
	n.register(t)
	eventually(t, func() bool { return len(n.slices.published()) > 0 }, "the leader publishes")
}

func TestAwaitKubelet_NeverRegistered_GoesOnAfterLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		start := time.Now()
		(&leader{registered: make(chan struct{})}).awaitKubelet(t.Context())
		assert.Equal(t, registrationLimit, time.Since(start), "by the bubble's clock")
		registered := make(chan struct{})
		close(registered)
		(&leader{registered: registered}).awaitKubelet(t.Context())
		ended, end := context.WithCancel(t.Context())
		end()
		(&leader{registered: make(chan struct{})}).awaitKubelet(ended)
		assert.Equal(t, registrationLimit, time.Since(start))
	})
}
