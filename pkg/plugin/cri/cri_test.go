package cri

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtime is a container runtime with these answers.
type runtime struct {
	api.UnimplementedRuntimeServiceServer
	name, version, config string
	containers            []*api.Container
	started               map[string]int64
}

func (r *runtime) Version(context.Context, *api.VersionRequest) (*api.VersionResponse, error) {
	return &api.VersionResponse{RuntimeName: r.name, RuntimeVersion: r.version}, nil
}

func (r *runtime) Status(_ context.Context, request *api.StatusRequest) (*api.StatusResponse, error) {
	if !request.Verbose || r.config == "" {
		return &api.StatusResponse{}, nil
	}
	return &api.StatusResponse{Info: map[string]string{"config": r.config}}, nil
}

func (r *runtime) ListContainers(_ context.Context, request *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	found := &api.ListContainersResponse{}
	for _, c := range r.containers {
		matches := request.Filter.Id == "" || request.Filter.Id == c.Id
		for name, value := range request.Filter.LabelSelector {
			matches = matches && c.Labels[name] == value
		}
		if matches {
			found.Containers = append(found.Containers, c)
		}
	}
	return found, nil
}

func (r *runtime) ContainerStatus(_ context.Context, request *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	return &api.ContainerStatusResponse{Status: &api.ContainerStatus{StartedAt: r.started[request.ContainerId]}}, nil
}

// serve serves at containerd's usual place until the test ends.
func (r *runtime) serve(t *testing.T) Client {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "run/containerd"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "var"), 0o755))
	require.NoError(t, os.Symlink("/run", filepath.Join(root, "var/run")))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(root, "run/containerd/containerd.sock"))
	require.NoError(t, err)
	server := grpc.NewServer()
	api.RegisterRuntimeServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return Client{HostRoot: root}
}

// TestCDIProblem_Answers_AsSaid. The configurations are parts of the output of containerd (1.7, 2.0 and 2.4) and CRI-O.
func TestCDIProblem_Answers_AsSaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ runtime, version, config, want string }{
		"containerd 1.7, default": {"containerd", "v1.7.27", `{"enableCDI":false,"cdiSpecDirs":["/etc/cdi","/var/run/cdi"]}`, "CDI is off in containerd v1.7.27: set enable_cdi = true"},
		"containerd 1.7, on":      {"containerd", "v1.7.27", `{"enableCDI":true,"cdiSpecDirs":["/etc/cdi","/var/run/cdi"]}`, ""},
		"containerd 1.7, k3s":     {"containerd", "v1.7.23-k3s2", `{"enableCDI":false}`, "CDI is off"},
		"containerd 2.0":          {"containerd", "v2.0.5", `{"enableCDI":true,"cdiSpecDirs":["/etc/cdi","/run/cdi"]}`, ""},
		"containerd 2.4":          {"containerd", "v2.4.2", `{"cdiSpecDirs":["/etc/cdi","/var/run/cdi"],"other":1}`, ""},
		"other directory": {"containerd", "v2.4.2", `{"cdiSpecDirs":["/etc/cdi"]}`, `containerd v2.4.2 reads CDI specs in ["/etc/cdi"],but the CDI specs of claims are in ` +
			`/var/run/cdi: add it to cdi_spec_dirs`},
		"no directory":   {"containerd", "v2.4.2", `{"cdiSpecDirs":null}`, "reads CDI specs in []"},
		"containerd 1.6": {"containerd", "1.6.36", `{}`, "containerd 1.6.36 does not read the CDI specs of claims: upgrade to 1.7.0 or later"},
		"CRI-O":          {"cri-o", "1.34.0", `{"sandboxImage":"pause"}`, ""},
		"CRI-O 1.22":     {"cri-o", "1.22.5", `{"sandboxImage":"pause"}`, "upgrade to 1.28.0 or later"},
		"other runtime":  {"docker", "28.0.1", "", ""},
		"no version":     {"containerd", "unknown", "not JSON", ""},
	} {
		client := (&runtime{name: c.runtime, version: c.version, config: c.config}).serve(t)
		problem, err := client.CDIProblem(t.Context(), "/var/run/cdi")
		require.NoError(t, err, name)
		if c.want == "" {
			assert.Empty(t, problem, name)
		}
		assert.Contains(t, problem, c.want, name)
	}
	_, err := Client{HostRoot: t.TempDir()}.CDIProblem(t.Context(), "/var/run/cdi")
	require.ErrorContains(t, err, "no container runtime serves at /run/containerd/containerd.sock")
}

// TestCrun_Handlers_AsConfigured: the configurations are parts of the output of containerd 1.7 and 2.4 with one more handler.
func TestCrun_Handlers_AsConfigured(t *testing.T) {
	t.Parallel()
	const (
		one  = `{"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{"runtimeType":"io.containerd.runc.v2","options":{"BinaryName":"","NoPivotRoot":false}}}}}`
		both = `{"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{"runtimeType":"io.containerd.runc.v2","runtimePath":"","options":{}},` +
			`"small":{"runtimeType":"io.containerd.runc.v2","options":{"BinaryName":"/usr/local/bin/crun"}},"wasm":{"options":{"BinaryName":"crun-wasm"}},` +
			`"nvidia":{"options":{"BinaryName":"/usr/bin/nvidia-container-runtime"}},"crun":{"options":{"BinaryName":"/usr/bin/runc"}},"kata":{"options":null}}}}`
		crun = `{"containerd":{"defaultRuntimeName":"crun","runtimes":{"crun":{"options":{"BinaryName":"/usr/bin/crun"}},"runc":{"options":{"BinaryName":""}}}}}`
	)
	for name, c := range map[string]struct {
		runtime, config string
		crun, others    []string // handlers
	}{
		"containerd, runc alone":    {"containerd", one, nil, []string{"", "runc", "crun"}},
		"containerd, more handlers": {"containerd", both, []string{"small", "wasm"}, []string{"", "runc", "nvidia", "crun", "kata", "unknown"}},
		"containerd, crun first":    {"containerd", crun, []string{"", "crun"}, []string{"runc"}},
		"CRI-O":                     {"cri-o", `{"sandboxImage":"pause"}`, []string{"", "crun", "high-performance"}, []string{"runc"}},
		"says nothing":              {"docker", "", nil, []string{"", "crun"}},
	} {
		client := (&runtime{name: c.runtime, version: "v2.4.2", config: c.config}).serve(t)
		for want, handlers := range map[bool][]string{true: c.crun, false: c.others} {
			for _, handler := range handlers {
				crun, err := client.Crun(t.Context(), handler)
				require.NoError(t, err, name)
				assert.Equal(t, want, crun, "%s: %q", name, handler)
			}
		}
	}
	_, err := (&runtime{name: "containerd", version: "v2.4.2", config: "none"}).serve(t).Crun(t.Context(), "")
	require.ErrorContains(t, err, "reading the OCI runtime of a handler in the configuration of containerd v2.4.2: invalid character")
	_, err = Client{HostRoot: t.TempDir()}.Crun(t.Context(), "")
	require.ErrorContains(t, err, "no container runtime serves")
}

// TestStart_RuntimeRestarts_Changes: a restart creates the socket again.
func TestStart_RuntimeRestarts_Changes(t *testing.T) {
	t.Parallel()
	assert.Empty(t, Client{HostRoot: t.TempDir()}.Start())
	client := (&runtime{}).serve(t)
	first := client.Start()
	require.NotEmpty(t, first)
	assert.Equal(t, first, client.Start())
	socket := filepath.Join(client.HostRoot, "run/containerd/containerd.sock")
	require.NoError(t, os.Chtimes(socket, time.Unix(1, 0), time.Unix(1, 0)))
	assert.NotEqual(t, first, client.Start())
	client.Socket = "/run/containerd/containerd.sock"
	assert.Equal(t, "1000000000", client.Start())
}

// TestStarted_Container_OnlyThatAndAfterTheTime: a container whose hook failed has exited, but was never started.
func TestStarted_Container_OnlyThatAndAfterTheTime(t *testing.T) {
	t.Parallel()
	of := func(id, container string, created int64) *api.Container {
		return &api.Container{Id: id, CreatedAt: created, Labels: map[string]string{
			labelNamespace: "ns", labelPod: "pod", labelContainer: container, "other": "label",
		}}
	}
	client := (&runtime{
		containers: []*api.Container{of("old", "main", 50), of("failed", "main", 150), of("new", "main", 200), of("side", "side", 150)},
		started:    map[string]int64{"old": 60, "new": 210},
	}).serve(t)
	for _, c := range []struct {
		container string
		after     int64
		want      bool
	}{{"main", 100, true}, {"main", 10, true}, {"main", 200, false}, {"side", 100, false}, {"none", 0, false}} {
		started, err := client.Started(t.Context(), "ns", "pod", c.container, time.Unix(0, c.after))
		require.NoError(t, err)
		assert.Equal(t, c.want, started, c)
	}
}

func TestPodOf_Container_NameOfItsPod(t *testing.T) {
	t.Parallel()
	client := (&runtime{containers: []*api.Container{
		{Id: "a", Labels: map[string]string{labelNamespace: "team", labelPod: "train"}}, {Id: "b", Labels: map[string]string{labelNamespace: "x"}},
	}}).serve(t)
	namespace, name, err := client.PodOf(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, "team/train", namespace+"/"+name)
	namespace, name, err = client.PodOf(t.Context(), "none")
	require.NoError(t, err)
	assert.Empty(t, namespace+name)
}
