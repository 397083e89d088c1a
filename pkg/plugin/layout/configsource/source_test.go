package configsource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/layout"
)

// An error that only an edit corrects is reported, and GPUs are advertised without the configuration; every other error is retried.
func TestPassing_Errors_RetriedOrNot(t *testing.T) {
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
		assert.Equal(t, c.want, Retryable(c.err), name)
	}
	assert.NoError(t, refused(nil))
}

func TestNodeConfig_Sources_Found(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "node.yaml")
	client := fake.NewClientset()
	read := func(from config.NodeConfig) error {
		_, err := (&reader{from: from, api: kube.Configs{Client: client}}).read(t.Context())
		return err
	}
	require.NoError(t, read(config.NodeConfig{}), "GPUs are advertised whole")
	err := read(config.NodeConfig{File: file})
	require.ErrorContains(t, err, "--node-config: ")
	assert.False(t, Retryable(err))
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpuz: []\n"), 0o600))
	err = read(config.NodeConfig{File: file})
	require.ErrorContains(t, err, "gpuz")
	assert.False(t, Retryable(err))
	err = read(config.NodeConfig{Map: "ns/name"})
	require.ErrorContains(t, err, "ns/name")
	assert.False(t, Retryable(err), "there is none")
}

// TestNodeConfig_FileChanges_ReadAgain when it is another one.
func TestNodeConfig_FileChanges_ReadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "node.yaml")
	changes := make(chan struct{}, 100)
	source := &Source{reader: reader{from: config.NodeConfig{File: file}}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- source.Watch(ctx, func() { changes <- struct{}{} }) }()
	for entries, gpus := range []string{"[]", "[{}]", "[{}, {select: {indices: [0]}}]"} {
		text := "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus: " + gpus + "\n"
		require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
		limit := time.After(time.Minute)
		for read := -1; read != entries; {
			select {
			case <-changes:
				if c, err := source.Read(ctx); err == nil {
					read = len(c.GPUs)
				}
			case <-limit:
				require.Equal(t, entries, read, "entries that were read")
			}
		}
	}
	stop()
	assert.NoError(t, <-ended)
}

// TestNodeConfig_NodeLabel_Chooses if there is one; the configuration that it names must exist.
func TestNodeConfig_NodeLabel_Chooses(t *testing.T) {
	t.Parallel()
	const key, header = "nvidia.com/device-plugin.config", "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\n"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}}
	client := fake.NewClientset(node, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nodes"}, Data: map[string]string{
		"default": header, "mig": header + "gpus: [{modes: [mig]}]\n",
	}})
	reading := &reader{nodeName: "n0", api: kube.Configs{Client: client}, from: config.NodeConfig{
		Map: "ns/nodes", Label: key, Fallbacks: config.Names{"named"},
	}}
	read := func(label string) (int, error) {
		node.Labels = map[string]string{key: label}
		_, err := client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		require.NoError(t, err)
		c, err := reading.read(t.Context())
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
	assert.False(t, Retryable(err))
}

// TestNodeFlags_Configuration_Applied: they apply unless a source nearer to the process sets them.
func TestNodeFlags_Configuration_Applied(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "node.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\n"+
		"flags: {nvidiaDriverRoot: /run/nvidia/driver, failOnInitError: true}\n"), 0o600))
	no, yes := false, true
	for name, c := range map[string]struct{ set, want config.Driver }{
		"nothing is set": {config.Driver{}, config.Driver{Root: "/run/nvidia/driver", FailOnInitError: &yes}},
		"all is set":     {config.Driver{Root: "/", FailOnInitError: &no}, config.Driver{Root: "/", FailOnInitError: &no}},
	} {
		cfg := &config.Plugin{NodeConfig: config.NodeConfig{File: file}, Driver: c.set}
		_, with, read := Open(t.Context(), Options{Config: cfg, Saved: savedOf(t, cfg)})
		require.NoError(t, read.ConfigErr)
		assert.NotNil(t, read.Config)
		assert.Equal(t, c.want, with.Driver, name)
		assert.Equal(t, c.set, cfg.Driver, "what was set stays")
	}
}

// TestNodeFlags_ConfigurationUnreadable_Kept at a start, whatever the reason; a flag of the process wins all the same.
func TestNodeFlags_ConfigurationUnreadable_Kept(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "node.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("gpuz: []\n"), 0o600))
	hanging := fake.NewClientset()
	hanging.PrependReactor("get", "configmaps", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, context.DeadlineExceeded
	})
	for name, c := range map[string]struct {
		from  config.NodeConfig
		saved *v1alpha1.NodeFlags
		root  string
		want  string
		fails bool
	}{
		"it is wrong":       {config.NodeConfig{File: bad}, &v1alpha1.NodeFlags{NVIDIADriverRoot: new("/saved"), FailOnInitError: new(true)}, "", "/saved", true},
		"it cannot be read": {config.NodeConfig{Map: "ns/m"}, &v1alpha1.NodeFlags{NVIDIADriverRoot: new("/saved"), FailOnInitError: new(true)}, "", "/saved", true},
		"a flag wins":       {config.NodeConfig{File: bad}, &v1alpha1.NodeFlags{NVIDIADriverRoot: new("/saved")}, "/flag", "/flag", false},
		"there is none":     {config.NodeConfig{}, &v1alpha1.NodeFlags{NVIDIADriverRoot: new("/saved")}, "", "", false},
		"nothing is saved":  {config.NodeConfig{File: bad}, nil, "", "", false},
	} {
		cfg := &config.Plugin{NodeConfig: c.from, DriverName: "gpu.prism.dev"}
		cfg.Driver.Root = c.root
		saved := savedOf(t, cfg)
		if c.saved != nil {
			require.NoError(t, saved.Save(layout.Saved{Flags: c.saved}))
		}
		_, cfg, _ = Open(t.Context(), Options{Config: cfg, API: kube.Configs{Client: hanging}, Saved: saved})
		assert.Equal(t, c.want, cfg.Driver.Root, name)
		assert.Equal(t, c.fails, cfg.Driver.FailOnInitError != nil && *cfg.Driver.FailOnInitError, name)
	}
}

// TestNodeFlags_AnotherDriverRoot_RestartRequired, which is reported once until the root is the same again: the first read may have come
// too late, or people change it.
func TestNodeFlags_AnotherDriverRoot_RestartRequired(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "node.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\nflags: {nvidiaDriverRoot: /at/start}\n"), 0o600))
	at := func(root string) *v1alpha1.NodeConfig {
		return &v1alpha1.NodeConfig{Flags: &v1alpha1.NodeFlags{NVIDIADriverRoot: &root}}
	}
	source := sourceOf(t, &config.Plugin{DriverName: "gpu.prism.dev", NodeConfig: config.NodeConfig{File: file}})
	require.Equal(t, "/at/start", source.root)
	said := func(root, from string) string {
		return `The node's configuration has nvidiaDriverRoot "` + root + `", and the plugin was started with "` + from +
			`": delete the plugin's pod on this node, so that it is started with the other one`
	}
	for _, step := range []struct {
		config *v1alpha1.NodeConfig
		want   string
	}{
		{at("/at/start"), ""}, {at("/later"), said("/later", "/at/start")}, {at("/later"), ""}, {at("/at/start"), ""},
		{at("/later"), said("/later", "/at/start")}, {nil, said("", "/at/start")}, {&v1alpha1.NodeConfig{}, ""},
	} {
		assert.Equal(t, step.want, source.otherRoot(step.config))
	}

	late := sourceOf(t, &config.Plugin{DriverName: "gpu.prism.dev", NodeConfig: config.NodeConfig{File: file + ".none"}})
	assert.Equal(t, said("/later", ""), late.otherRoot(at("/later")), "it was not known at the start")

	flagged := sourceOf(t, &config.Plugin{DriverName: "gpu.prism.dev", Driver: config.Driver{Root: "/flag"}})
	assert.Empty(t, flagged.otherRoot(at("/later")), "a flag wins")
}

// sourceOf is the configuration of a process that starts with these settings.
func sourceOf(t *testing.T, cfg *config.Plugin) *Source {
	t.Helper()
	source, _, _ := Open(t.Context(), Options{Config: cfg, Saved: savedOf(t, cfg)})
	return source
}

// savedOf is the store of a node that has saved no layout.
func savedOf(t *testing.T, cfg *config.Plugin) layout.Store {
	t.Helper()
	cfg.Paths.KubeletPlugins = t.TempDir()
	require.NoError(t, os.MkdirAll(cfg.PluginDir(), 0o750))
	return layout.File{Disk: disk.OS{}, Dir: cfg.PluginDir()}
}
