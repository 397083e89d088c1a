package profiler

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/profiler/rules"
)

const claimUID = "6f0c1d2e-0000-4000-8000-00000000000a"

// profilingHost is a node with the profiler.
type profilingHost struct {
	*Extension
	cfg    *config.Plugin
	client *fake.Clientset
}

// programHost is a host without programs.
type programHost struct{}

func (programHost) Program(...string) (string, bool)    { return "", false }
func (programHost) FileID(string) (hostfs.FileID, bool) { return hostfs.FileID{}, false }
func (programHost) NoExec(string) (bool, error)         { return false, nil }
func (programHost) CheckPrograms(string) error          { return nil }

// rulesMap returns the ConfigMap with the rules of the cluster.
func rulesMap(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rules"}, Data: map[string]string{rules.Key: text}}
}

// profilingNode returns a node that profiles by these rules, with Nsight Systems of these versions.
func profilingNode(t *testing.T, rules string, versions ...string) *profilingHost {
	t.Helper()
	root := t.TempDir()
	cfg := &config.Plugin{DriverName: "gpu.prism.dev", NodeName: "n0", Profiler: config.Profiler{Enabled: true, Map: "ns/rules"}}
	cfg.Paths.KubeletPlugins, cfg.Paths.StateDir, cfg.Paths.RunDir = filepath.Join(root, "plugins"), filepath.Join(root, "state"), filepath.Join(root, "run")
	set, _ := installed(t, cfg)
	for _, version := range versions {
		install(t, cfg, version, `"2026-11-20T00:00:00Z"`)
	}
	opened, err := Open(t.Context(), Options{Config: cfg, Files: disk.OS{}, Now: time.Now, Programs: set})
	require.NoError(t, err)
	n := &profilingHost{cfg: cfg, client: fake.NewClientset(rulesMap(rules)), Extension: opened.(*Extension)}
	n.Connect(t.Context(), extension.Connection{
		Claims: n.client, Background: n.client, Records: func() ([]*checkpoint.Record, error) { return nil, nil },
	})
	return n
}

// install writes the manifest of a version.
func install(t *testing.T, cfg *config.Plugin, version, proven string) {
	t.Helper()
	dir := filepath.Join(cfg.ToolsDir(), version+"-0123")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "target-linux-x64"), 0o755))
	switches := `["--kill","--wait","--trace","--sample","--cpuctxsw","--duration"]`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.json"),
		[]byte(`{"schema":1,"version":"`+version+`","nsys":"target-linux-x64/nsys","importer":"importer/host-linux-x64","switches":`+switches+`,"proven":`+proven+`}`), 0o644))
}

// planned returns a record with that configuration as its profile, and with the version that the node chooses.
func (n *profilingHost) planned(t *testing.T, config *v1alpha1.ProfilerConfig) *checkpoint.Record {
	t.Helper()
	config.Default()
	require.NoError(t, n.Claim(t.Context()).(claim.ProfileExtension).Profiler.Choose(config, false))
	raw, err := json.Marshal(config)
	require.NoError(t, err)
	r := profiledRecord(claimUID)
	r.Extensions[claim.KindProfile] = raw
	return r
}
