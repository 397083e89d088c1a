package plugin

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// countedReads is the real disk; it counts how often each file of the records is read.
type countedReads struct {
	disk.OS

	mu    sync.Mutex
	times map[string]int
}

func (d *countedReads) Read(path string) ([]byte, error) {
	if filepath.Base(filepath.Dir(path)) == "claims" {
		d.mu.Lock()
		d.times[filepath.Base(path)]++
		d.mu.Unlock()
	}
	return d.OS.Read(path)
}

// TestBuild_RecordsAndConfiguration_ReadOnce: the layout begins with the data that the start has read. The plugin then serves, and ends
// with its context.
func TestBuild_RecordsAndConfiguration_ReadOnce(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}}, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nodes"},
		Data:       map[string]string{"default": "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\n"},
	})
	cfg, a := oneGPUNode(t, client)
	cfg.NodeConfig.Map, cfg.NodeConfig.Name = "ns/nodes", "default"
	files := &countedReads{times: map[string]int{}}
	a.Disk = files
	records, err := checkpoint.Open(files, cfg.PluginDir())
	require.NoError(t, err)
	require.NoError(t, records.Put(&checkpoint.Record{
		Claim: checkpoint.Claim{UID: "uid", Namespace: "ns", Name: "claim"}, BootID: "boot", Writer: testVersion, State: checkpoint.Done,
		Results: []checkpoint.Result{{Request: "gpu", Pool: "n0", Device: "gpu-aaaaaaaa", Type: gpu.TypeGPU, GPUUUID: "GPU-aaaaaaaa-0000-4000-8000-000000000000"}},
		CDI:     checkpoint.CDI{Kind: "gpu.prism.dev/claim", Devices: []string{"uid-0"}},
	}))
	p, err := Build(t.Context(), cfg, a)
	require.NoError(t, err)
	files.mu.Lock()
	assert.Equal(t, map[string]int{"uid.json": 1}, files.times)
	files.mu.Unlock()
	maps := 0
	for _, action := range client.Actions() {
		if action.Matches("get", "configmaps") {
			maps++
		}
	}
	assert.Equal(t, 1, maps)
	kept, err := p.Machine.Kept()
	require.NoError(t, err)
	assert.Len(t, kept, 1, "it is a good record")
	assert.Len(t, p.layout.Controller.Snapshot().Devices(), 1)

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop()
	require.NoError(t, ended(t, done))
}
