package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/prism-gpu/prism/pkg/config"
)

// What only people can mend is told, and GPUs are offered without it; everything else is waited for.
func TestPassing(t *testing.T) {
	t.Parallel()
	maps := schema.GroupResource{Resource: "configmaps"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"no answer":            {errors.New("dial tcp: connection refused"), true},
		"out of time":          {context.DeadlineExceeded, true},
		"forbidden, for now":   {fmt.Errorf("reading: %w", apierrors.NewForbidden(maps, "m", errors.New("no"))), true},
		"server error":         {apierrors.NewInternalError(errors.New("etcd")), true},
		"there is no Node yet": {fmt.Errorf("reading: %w", apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "n")), true},
		"a text that is wrong": {fmt.Errorf("reading: %w", refused(errors.New("unknown key"))), false},
	} {
		assert.Equal(t, c.want, passing(c.err), name)
	}
	assert.NoError(t, refused(nil))
}

func TestWhereTheNodeConfigurationIs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "node.yaml")
	clients := connections{background: fake.NewClientset()}
	read := func(from config.NodeConfig) error {
		p := &program{cfg: &config.Plugin{NodeConfig: from}}
		_, err := p.nodeConfig(t.Context(), clients)
		return err
	}
	require.NoError(t, read(config.NodeConfig{}), "GPUs are offered whole")
	err := read(config.NodeConfig{File: file})
	require.ErrorContains(t, err, "--node-config: ")
	assert.False(t, passing(err))
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpuz: []\n"), 0o600))
	err = read(config.NodeConfig{File: file})
	require.ErrorContains(t, err, "gpuz")
	assert.False(t, passing(err))
	err = read(config.NodeConfig{Map: "ns/name"})
	require.ErrorContains(t, err, "ns/name")
	assert.False(t, passing(err), "there is none")
}

// TestTheLabelChooses where there is one; what it names must be there.
func TestTheLabelChooses(t *testing.T) {
	t.Parallel()
	const key, header = "nvidia.com/device-plugin.config", "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\n"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}}
	client := fake.NewClientset(node, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nodes"}, Data: map[string]string{
		"default": header, "mig": header + "gpus: [{modes: [mig]}]\n",
	}})
	p := &program{cfg: &config.Plugin{NodeName: "n0", NodeConfig: config.NodeConfig{
		Map: "ns/nodes", Label: key, Fallbacks: config.Names{"named"},
	}}}
	read := func(label string) (int, error) {
		node.Labels = map[string]string{key: label}
		_, err := client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		require.NoError(t, err)
		c, err := p.nodeConfig(t.Context(), connections{background: client})
		if err != nil {
			return 0, err
		}
		return len(c.GPUs), nil
	}
	for label, want := range map[string]int{"": 0, "default": 0, "mig": 1} {
		entries, err := read(label)
		require.NoError(t, err)
		assert.Equal(t, want, entries, label)
	}
	_, err := read("none")
	require.EqualError(t, err, "ConfigMap ns/nodes: specified config none does not exist; the node's label "+key+" names it: there are: default, mig")
	assert.False(t, passing(err))
}

// TestFlagsOfTheConfiguration are those of the process that nothing nearer to it has set.
func TestFlagsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "node.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\n"+
		"flags: {nvidiaDriverRoot: /run/nvidia/driver, failOnInitError: true}\n"), 0o600))
	no, yes := false, true
	for name, c := range map[string]struct{ set, want config.Driver }{
		"nothing is set": {config.Driver{}, config.Driver{Root: "/run/nvidia/driver", FailOnInitError: &yes}},
		"all is set":     {config.Driver{Root: "/", FailOnInitError: &no}, config.Driver{Root: "/", FailOnInitError: &no}},
	} {
		p := &program{cfg: &config.Plugin{NodeConfig: config.NodeConfig{File: file}, Driver: c.set}}
		p.applyFlags(t.Context(), connections{})
		assert.Equal(t, c.want, p.cfg.Driver, name)
		read, err := p.nodeConfig(t.Context(), connections{})
		require.NoError(t, err)
		assert.NotNil(t, read, "it is not read twice")
		assert.Nil(t, p.first.Load())
	}
}
