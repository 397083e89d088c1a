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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
		"no answer":             {errors.New("dial tcp: connection refused"), true},
		"out of time":           {context.DeadlineExceeded, true},
		"forbidden, for now":    {fmt.Errorf("reading: %w", apierrors.NewForbidden(maps, "m", errors.New("no"))), true},
		"server error":          {apierrors.NewInternalError(errors.New("etcd")), true},
		"there is no ConfigMap": {fmt.Errorf("reading: %w", apierrors.NewNotFound(maps, "m")), false},
		"a text that is wrong":  {fmt.Errorf("reading: %w", refused(errors.New("unknown key"))), false},
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
