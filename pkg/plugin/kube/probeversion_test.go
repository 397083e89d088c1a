package kube_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery/fake"
	clientset "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

func TestCountsShares_Versions_From1_36_2(t *testing.T) {
	t.Parallel()
	for gitVersion, want := range map[string]bool{
		"v1.35.9": false, "v1.36.0": false, "v1.36.1": false, "v1.36.1-gke.1234000": false, "v1.36.1+k3s1": false, "": false, "unknown": false,
		"v1.36.2": true, "v1.36.2-gke.100": true, "v1.36.2-eks-0123456": true, "v1.36.10+rke2r1": true, "v1.37.0": true, "v2.0.0": true,
	} {
		client := clientset.NewClientset()
		client.Discovery().(*fake.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: gitVersion}
		counted, err := kube.Probe{Client: client, DriverName: driverName, NodeName: nodeName}.CountsShares(t.Context())
		require.NoError(t, err, gitVersion)
		assert.Equal(t, want, counted, gitVersion)
	}
}

// TestProbe_SchedulerOlderThanServer_ItsVersionCounts.
func TestProbe_SchedulerOlderThanServer_ItsVersionCounts(t *testing.T) {
	t.Parallel()
	client := clientset.NewClientset()
	client.Discovery().(*fake.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.37.0"}
	client.PrependReactor("create", "resourceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return true, action.(clienttesting.CreateAction).GetObject(), nil //nolint:forcetypeassert // of that verb
	})
	for scheduler, want := range map[string][2]bool{"1.35.4": {false, false}, "v1.36.1": {true, false}, "1.36.2": {true, true}, "1.37.1": {true, true}} {
		p := kube.Probe{Client: client, DriverName: driverName, NodeName: nodeName, NodeUID: "uid", SchedulerVersion: scheduler}
		counters, err := p.PartitionableDevices(t.Context())
		require.NoError(t, err)
		shares, err := p.CountsShares(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, [2]bool{counters, shares}, scheduler)
	}
}

func TestCountsShares_ServerFails_Error(t *testing.T) {
	t.Parallel()
	client := clientset.NewClientset()
	client.PrependReactor("get", "version", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, assert.AnError
	})
	_, err := kube.Probe{Client: client}.CountsShares(t.Context())
	require.ErrorIs(t, err, assert.AnError)
	require.ErrorContains(t, err, "reading the API server's version: ")
}
