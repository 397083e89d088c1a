package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/kubernetes/fake"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
)

// running is a server and the kubelet's connections to it.
type running struct {
	*Server
	tx    *transaction
	stop  context.CancelFunc
	ended chan error
	plain config.Paths
}

// serve runs a server in separate directories: a socket's path is limited to 108 bytes.
func serve(t *testing.T, configure func(*config.Plugin)) *running {
	t.Helper()
	return serveWith(t, func(*Options) {}, configure)
}

// serveWith runs a server with changed ports.
func serveWith(t *testing.T, ports func(*Options), configure func(*config.Plugin)) *running {
	t.Helper()
	dir, err := os.MkdirTemp("", "prism")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	paths := config.Paths{CDIRoot: filepath.Join(dir, "c"), KubeletPlugins: filepath.Join(dir, "p"), KubeletRegistrar: filepath.Join(dir, "r")}
	cfg := &config.Plugin{DriverName: "gpu.prism.dev", NodeName: "n0", PodUID: "pod-1", Paths: paths}
	if configure != nil {
		configure(cfg)
	}
	for _, d := range []string{paths.CDIRoot, cfg.PluginDir(), paths.KubeletRegistrar} {
		require.NoError(t, os.MkdirAll(d, 0o750))
	}
	rc := claimOf("a")
	rc.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "gpu/big", Driver: "gpu.prism.dev", Pool: "n0", Device: "gpu-bbbbbbbb"}},
	}}
	rc.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "big"}}}}
	record := done("a")
	record.Results, record.CDI.Devices = record.Results[:1], record.CDI.Devices[:1]
	s := &running{tx: &transaction{records: map[string]*checkpoint.Record{"a": record}}, ended: make(chan error, 1), plain: paths}
	describe := func(string, string) map[string]resourceapi.DeviceAttribute {
		return map[string]resourceapi.DeviceAttribute{"productName": {StringValue: new("NVIDIA L40S")}}
	}
	options := Options{
		Transaction: s.tx, Reports: &reports{}, Metrics: &measured{}, Metadata: DeviceMetadata{Describe: describe, Files: MetadataOf(cfg)},
		Fatal: func(err error) { t.Error(err) },
	}
	ports(&options)
	s.Server = &Server{Handler: New(options), Config: cfg, Client: fake.NewClientset(rc)}
	ctx, cancel := context.WithCancel(t.Context())
	s.stop = cancel
	go func() { s.ended <- s.Run(ctx) }()
	t.Cleanup(cancel)
	return s
}

// dial connects to a socket once it exists.
func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	require.Eventually(t, func() bool {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
		if err == nil {
			_ = connection.Close()
		}
		return err == nil
	}, limit, time.Millisecond, socket)
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// register registers like the kubelet and returns its connection to the plugin.
func (s *running) register(t *testing.T) (registerapi.RegistrationClient, drapb.DRAPluginClient) {
	t.Helper()
	registrar := registerapi.NewRegistrationClient(dial(t, filepath.Join(s.plain.KubeletRegistrar, "gpu.prism.dev-pod-1-reg.sock")))
	info, err := registrar.GetInfo(t.Context(), &registerapi.InfoRequest{})
	require.NoError(t, err)
	assert.Equal(t, registerapi.DRAPlugin, info.Type)
	assert.Equal(t, "gpu.prism.dev", info.Name)
	assert.Contains(t, info.SupportedVersions, "v1.DRAPlugin")
	assert.Equal(t, filepath.Join(s.Config.PluginDir(), "dra-pod-1.sock"), info.Endpoint)
	return registrar, drapb.NewDRAPluginClient(dial(t, info.Endpoint))
}

func prepareRequest(uids ...string) *drapb.NodePrepareResourcesRequest {
	request := &drapb.NodePrepareResourcesRequest{}
	for _, uid := range uids {
		request.Claims = append(request.Claims, &drapb.Claim{Namespace: "default", Name: "claim-" + uid, Uid: uid})
	}
	return request
}

func TestServer_Ready_OnceTheKubeletRegistered(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	require.EqualError(t, s.Ready(), "the kubelet has not registered this plugin yet")
	registrar, _ := s.register(t)
	require.Error(t, s.Ready(), "the kubelet has only probed so far")
	_, err := registrar.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true})
	require.NoError(t, err)
	require.NoError(t, s.Ready())
	_, _ = registrar.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{Error: "no"})
	require.Error(t, s.Ready())
	_, err = registrar.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true})
	require.NoError(t, err)
	s.stop()
	require.NoError(t, <-s.ended)
	require.Error(t, s.Ready())
}

func TestServer_KubeletCalls_Answered(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	_, plugin := s.register(t)
	answer, err := plugin.NodePrepareResources(t.Context(), prepareRequest("a"))
	require.NoError(t, err)
	require.Len(t, answer.Claims, 1)
	require.Empty(t, answer.Claims["a"].Error)
	require.Len(t, answer.Claims["a"].Devices, 1)
	d := answer.Claims["a"].Devices[0]
	assert.Equal(t, []string{"gpu"}, d.RequestNames, "the kubelet knows no subrequests")
	assert.Equal(t, []string{"k8s.gpu.prism.dev/claim=a-big"}, d.CdiDeviceIds)

	gone, err := plugin.NodeUnprepareResources(t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{
		{Namespace: "default", Name: "claim-a", Uid: "a"}, {Namespace: "default", Name: "claim-b", Uid: "b"},
	}})
	require.NoError(t, err)
	assert.Empty(t, gone.Claims["a"].Error)
	assert.Equal(t, "claim b stays", gone.Claims["b"].Error)
}

func TestServer_DeviceMetadataOn_FileMounted(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *config.Plugin) { c.DeviceMetadata = true })
	_, plugin := s.register(t)
	answer, err := plugin.NodePrepareResources(t.Context(), prepareRequest("a"))
	require.NoError(t, err)
	assert.Len(t, answer.Claims["a"].Devices[0].CdiDeviceIds, 2, "the second one mounts the file")
	written, err := filepath.Glob(filepath.Join(s.plain.CDIRoot, "gpu.prism.dev_metadata_a_*.json"))
	require.NoError(t, err)
	require.Len(t, written, 1)
	var metadata []byte
	require.NoError(t, filepath.WalkDir(s.Config.PluginDir(), func(path string, entry os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".json" && !entry.IsDir() {
			metadata, err = os.ReadFile(path)
		}
		return err
	}))
	assert.Contains(t, string(metadata), "NVIDIA L40S")
	var versions []string
	for decoder := json.NewDecoder(bytes.NewReader(metadata)); decoder.More(); {
		var object struct {
			APIVersion string
			Requests   []struct {
				Devices []struct {
					Attributes map[string]resourceapi.DeviceAttribute
				}
			}
		}
		require.NoError(t, decoder.Decode(&object))
		versions = append(versions, object.APIVersion)
		assert.EqualValues(t, 1, *object.Requests[0].Devices[0].Attributes["schemaVersion"].IntValue)
	}
	assert.Equal(t, []string{"metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1"}, versions, "the newest first")
	_, err = plugin.NodeUnprepareResources(t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: prepareRequest("a").Claims})
	require.NoError(t, err)
	assert.NoFileExists(t, written[0])
}

func TestServer_ContextEnds_RunningCallAnswered(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	registrar, plugin := s.register(t)
	_, err := registrar.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true})
	require.NoError(t, err)
	begun, finish, answered := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	s.tx.during = func() {
		close(begun)
		<-finish
	}
	go func() {
		answer, err := plugin.NodePrepareResources(t.Context(), prepareRequest("a"))
		if err == nil && answer.Claims["a"].Error != "" {
			err = fmt.Errorf("claim a: %s", answer.Claims["a"].Error)
		}
		answered <- err
	}()
	<-begun
	s.stop()
	require.Eventually(t, func() bool { return s.Ready() != nil }, limit, time.Millisecond, "no new work")
	select {
	case err := <-s.ended:
		t.Fatal("it ended while a call ran", err)
	case <-time.After(3 * sendTime):
	}
	close(finish)
	require.NoError(t, <-answered)
	require.NoError(t, <-s.ended)
	for _, dir := range []string{s.plain.KubeletRegistrar, s.Config.PluginDir()} {
		left, err := filepath.Glob(filepath.Join(dir, "*.sock"))
		require.NoError(t, err)
		assert.Empty(t, left, "the kubelet would find a socket without a server")
	}
}

func TestServer_DirectoryMissing_Error(t *testing.T) {
	t.Parallel()
	s := &Server{Handler: &Handler{}, Client: fake.NewClientset(), Config: &config.Plugin{
		DriverName: "gpu.prism.dev", NodeName: "n0", Paths: config.Paths{KubeletPlugins: "/nowhere", KubeletRegistrar: "/nowhere"},
	}}
	require.ErrorContains(t, s.Run(t.Context()), "serving the kubelet: ")
}
