package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDeviceTable_NoDriver_Added(t *testing.T) {
	const machine = "Character devices:\n  1 mem\n235 hidraw\n\nBlock devices:\n  7 loop\n"
	assert.Equal(t, `Character devices:
  1 mem
235 hidraw
195 nvidia
195 nvidia-modeset
195 nvidiactl
236 nvidia-uvm
237 nvidia-caps

Block devices:
  7 loop
`, deviceTable(machine))
}

func TestDeviceTable_RealDriver_Unchanged(t *testing.T) {
	const machine = "Character devices:\n195 nvidia\n195 nvidia-modeset\n195 nvidiactl\n510 nvidia-uvm\n511 nvidia-caps\n\nBlock devices:\n  7 loop\n"
	assert.Equal(t, machine, deviceTable(machine))
}

func TestWriteConfig_Settings_InFiles(t *testing.T) {
	m := Machine{Cluster: "a", Name: "n1", Index: 1, Dir: t.TempDir(), Programs: "/bin", KubeletConfig: []string{"cpuManagerPolicy: static", "systemReserved: {cpu: 100m}"}}
	require.NoError(t, m.WriteConfig("/pki", "localhost/pause:1"))
	for file, want := range map[string][]string{
		kubeletConfigFile:                {"cgroupRoot: /prism/a/n1", "tlsCertFile: /pki/kubelet-n1.crt", "failCgroupV1: false", "\ncpuManagerPolicy: static\nsystemReserved: {cpu: 100m}\n"},
		containerdConfigFile:             {`sandbox = "localhost/pause:1"`, "restrict_oom_score_adj = true"},
		networkDir + "/10-pods.conflist": {`"subnet": "10.244.11.0/24"`},
	} {
		text, err := os.ReadFile(filepath.Join(m.Dir, file))
		require.NoError(t, err)
		for _, line := range want {
			assert.Contains(t, string(text), line)
		}
		assert.NotContains(t, string(text), "%!", "every verb has its argument")
	}
	assert.DirExists(t, m.StateDir())
}

func TestEnvironment_Node_Named(t *testing.T) {
	m := Machine{Name: "n1", Index: 1, Dir: "/state/n1", Programs: "/state/bin"}
	assert.Subset(t, m.Environment(), []string{"NODE_NAME=n1", "NODE_INDEX=1", "NODE_STATE=/state/n1/state"})
	assert.Contains(t, m.KubeletArgs("/k")[4], "172.30.0.11")
}
