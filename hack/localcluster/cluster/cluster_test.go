//go:build linux

package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/hack/localcluster/parts"
	"github.com/prism-gpu/prism/hack/localcluster/report"
)

// open creates a cluster in folders of the test.
func open(t *testing.T, name string) *Cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "lc") // a socket's path must be short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "s"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "c"))
	c, err := Open(name)
	require.NoError(t, err)
	return c
}

func made(t *testing.T, s Settings) *Cluster {
	t.Helper()
	c := open(t, "a")
	require.NoError(t, os.MkdirAll(c.Dir, 0o755))
	require.NoError(t, c.save(s))
	return c
}

func TestOpen_InvalidName_Refused(t *testing.T) {
	open(t, "a-1")
	for _, name := range []string{"", "A", "a_b", "../x", "-a", "a-", strings.Repeat("a", 21)} {
		_, err := Open(name)
		assert.ErrorContains(t, err, "want 1 to 20", name)
	}
	t.Setenv("XDG_STATE_HOME", "/"+strings.Repeat("long/", 30))
	_, err := Open("a")
	assert.ErrorContains(t, err, "set XDG_STATE_HOME to a shorter one")
}

func TestNamespaces_TwoClusters_Distinct(t *testing.T) {
	assert.NotEqual(t, open(t, "a-n0").namespace(), open(t, "a").nodeNamespace(0))
}

func TestMachine_Settings_ReachTheNode(t *testing.T) {
	m := open(t, "a").machine(1, Settings{BootCommands: []string{"true"}, KubeletConfig: []string{"cpuManagerPolicy: static"}})
	assert.Equal(t, []string{"true"}, m.BootCommands)
	assert.Equal(t, []string{"cpuManagerPolicy: static"}, m.KubeletConfig)
}

func TestResolve_ExistingCluster_SettingsKept(t *testing.T) {
	s, err := open(t, "new").resolve(Settings{})
	require.NoError(t, err)
	assert.Equal(t, Settings{Kubernetes: parts.KubernetesVersion, Nodes: 1}, s)

	have := Settings{Kubernetes: "1.36.4", Nodes: 2, Port: 4000, BootCommands: []string{"true"}}
	c := made(t, have)
	s, err = c.resolve(Settings{Nodes: 2})
	require.NoError(t, err)
	assert.Equal(t, have, s)
	for want, refused := range map[string]Settings{
		"has Kubernetes 1.36.4, not 1.37.2":                            {Kubernetes: "1.37.2"},
		"has nodes: 2, not 3":                                          {Nodes: 3},
		"has port 4000, not 5000":                                      {Port: 5000},
		"has boot commands [true], not [false]":                        {BootCommands: []string{"false"}},
		"has kubelet configuration [], not [cpuManagerPolicy: static]": {KubeletConfig: []string{"cpuManagerPolicy: static"}},
	} {
		_, err = c.resolve(refused)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "localcluster down --name a")
	}
	_, err = open(t, "b").resolve(Settings{Nodes: 101})
	assert.ErrorContains(t, err, "want 1 to 100")
	_, err = open(t, "b").resolve(Settings{Kubernetes: "1.34.0"})
	assert.EqualError(t, err, `a cluster cannot run Kubernetes "1.34.0": choose 1.37.2, 1.36.4, 1.35.4 or, as a preview, 1.38.0-beta.0`)
}

func TestLoad_NoCluster_CommandNamed(t *testing.T) {
	_, err := open(t, "a").Load()
	require.ErrorIs(t, err, ErrNotThere)
	assert.ErrorContains(t, err, "localcluster up --name a")
}

func TestComponent_NodeAndService_Found(t *testing.T) {
	c := made(t, Settings{Kubernetes: "1.37.2", Nodes: 2})
	k, err := c.Component([]string{"n1", "kubelet"})
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(c.Dir, "n1", "log", "kubelet.log"), k.log)
	k, err = c.Component([]string{"apiserver"})
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(c.Dir, "control-plane", "control"), k.control)
	for want, words := range map[string][]string{
		"has 2 nodes: name one":        {"kubelet"},
		"does not have node \"n2\"":    {"n2", "kubelet"},
		"unknown component \"docker\"": {"n0", "docker"},
		"belongs to the control plane": {"n0", "etcd"},
	} {
		_, err = c.Component(words)
		require.ErrorContains(t, err, want)
	}
	one := made(t, Settings{Kubernetes: "1.37.2", Nodes: 1})
	k, err = one.Component([]string{"containerd"})
	require.NoError(t, err)
	assert.Equal(t, "n0", k.machine.Name)
}

func TestIsInit_CommandLine_OnlyOfTheSpec(t *testing.T) {
	spec := func(path string) bool { return path == "/s/a/n0/init.json" }
	assert.True(t, isInit([]string{"localcluster", "init", "/s/a/n0/init.json"}, spec))
	for _, args := range [][]string{nil, {"vi", "/s/a/n0/init.json"}, {"localcluster", "init", "/s/b/n0/init.json"}, {"grep", "-r", "init", "/s/a/n0/init.json"}} {
		assert.False(t, isInit(args, spec), args)
	}
}

func TestFind_OtherProcess_NotFound(t *testing.T) {
	spec := filepath.Join(t.TempDir(), "init.json")
	assert.Zero(t, find(spec), "no note")
	require.NoError(t, remember(spec, os.Getpid()))
	assert.Zero(t, find(spec), "the process of the note runs something else")
}

func TestQuote_Shell_TextUnchanged(t *testing.T) {
	for _, text := range []string{"", "plain/path-1.2", "two words", "it's $HOME `x` \"y\"", "a;b"} {
		out, err := exec.Command("/bin/sh", "-c", "printf %s "+quote(text)).Output()
		require.NoError(t, err)
		assert.Equal(t, text, string(out))
	}
}

func TestNetwork_Node_Commands(t *testing.T) {
	assert.Equal(t, `link add v1 type veth peer name eth0 netns prism-a_n1
link set v1 master br0 up
route replace 10.244.11.0/24 via 172.30.0.11 dev br0
`, nodeUplink(1, "prism-a_n1"))
	assert.Contains(t, controlPlaneLinks(), "addr add 10.96.0.1/32 dev lo")
}

func TestNodeReady_Conditions_Distinguished(t *testing.T) {
	var n apiNode
	n.Metadata.Name, n.Status.NodeInfo.BootID = "n0", "new"
	assert.ErrorContains(t, n.ready("other"), "has not registered since it was booted")
	assert.ErrorContains(t, n.ready("new"), "no Ready condition")
	n.Status.Conditions = []struct{ Type, Status, Message string }{{"MemoryPressure", "False", ""}, {"Ready", "False", "no runtime"}}
	assert.ErrorContains(t, n.ready("new"), "no runtime")
	n.Status.Conditions[1].Status = "True"
	assert.NoError(t, n.ready("new"))
}

// signalWriter signals every line that is written.
type signalWriter chan struct{}

func (w signalWriter) Write(p []byte) (int, error) {
	w <- struct{}{}
	return len(p), nil
}

func TestLock_TwoCallers_OneAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	waits := make(signalWriter, 100)
	progress := report.New(waits)
	unlock, err := lock(dir, progress)
	require.NoError(t, err)
	entered := make(chan func())
	go func() {
		second, err := lock(dir, progress)
		assert.NoError(t, err)
		entered <- second
	}()
	<-waits
	require.NoError(t, os.Remove(dir))
	unlock()
	second := <-entered
	assert.DirExists(t, dir, "the waiter locks a folder that is there")
	second()
}

func TestControlPlane_Services_Complete(t *testing.T) {
	c := open(t, "a")
	for _, service := range c.controlPlane().Services {
		assert.True(t, filepath.IsAbs(service.Args[0]), service.Name)
		assert.NotEmpty(t, service.Probe.URL, service.Name)
		assert.Contains(t, controlPlaneServices, service.Name)
	}
}
