package grpcread

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const method = "/v1.PodResourcesLister/List"

// lister is a kubelet that lists these pods, or fails.
type lister struct {
	podresources.UnimplementedPodResourcesListerServer
	pods []*podresources.PodResources
	err  error
}

func (l *lister) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: l.pods}, l.err
}

// listen returns a socket and a client of it.
func listen(t *testing.T) (net.Listener, Client) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s.sock")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	return listener, Client{Socket: socket, Quiet: time.Minute, Longest: time.Hour}
}

// grpcServer serves with the kubelet's library.
func grpcServer(t *testing.T, l *lister) Client {
	t.Helper()
	listener, client := listen(t)
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, l)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return client
}

// httpServer serves HTTP/2 without TLS.
func httpServer(t *testing.T, answer http.HandlerFunc) Client {
	t.Helper()
	listener, client := listen(t)
	server := &http.Server{Handler: answer, Protocols: new(http.Protocols), ReadHeaderTimeout: time.Hour}
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return client
}

// names collects the names of pods and of their containers.
func names(to *[]string) func(Field) error {
	var visit func(Field) error
	visit = func(f Field) error {
		if f.Number != 1 {
			return f.Each(visit) // containers
		}
		text, err := f.Text()
		*to = append(*to, string(text))
		return err
	}
	return func(f Field) error { return f.Each(visit) }
}

func TestCall_ServerOfTheKubelet_Read(t *testing.T) {
	t.Parallel()
	client := grpcServer(t, &lister{pods: []*podresources.PodResources{
		{Name: "a", Containers: []*podresources.ContainerResources{{Name: "x"}, {Name: strings.Repeat("y", 70_000)}}},
		{Name: "b", Containers: []*podresources.ContainerResources{{Name: "z"}}},
	}})
	var found []string
	require.NoError(t, client.Call(t.Context(), method, names(&found)))
	require.Equal(t, []string{"a", "x", strings.Repeat("y", MaxText), "b", "z"}, found)

	require.NoError(t, grpcServer(t, &lister{}).Call(t.Context(), method, func(Field) error { return errors.New("a field") }), "an empty message")
}

func TestCall_Status_Returned(t *testing.T) {
	t.Parallel()
	refused := status.Error(codes.ResourceExhausted, "10% of 5 calls: später")
	require.Equal(t, refused, grpcServer(t, &lister{err: refused}).Call(t.Context(), method, nil))
	err := grpcServer(t, &lister{}).Call(t.Context(), "/v1.PodResourcesLister/Unknown", nil)
	require.Equal(t, codes.Unimplemented, status.Code(err), err)
}

// Only a complete answer counts.
func TestCall_AnswerIsNoMessage_Refused(t *testing.T) {
	t.Parallel()
	one := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "text")
	for name, c := range map[string]struct {
		status int
		head   []byte
		body   []byte
		end    string
		want   string
	}{
		"no status":           {head: length(len(one)), body: one, want: "no gRPC status"},
		"a status of its own": {head: length(len(one)), body: one, end: "many", want: `the gRPC status "many"`},
		"failed at the end":   {head: length(len(one)), body: one, end: "14", want: "code = Unavailable"},
		"no message":          {end: "0", want: "unexpected EOF"},
		"half a head":         {head: []byte{0, 0}, end: "0", want: "unexpected EOF"},
		"compressed":          {head: append([]byte{1}, length(len(one))[1:]...), body: one, end: "0", want: "a compressed message"},
		"cut":                 {head: length(len(one) + 10), body: one, end: "0", want: "unexpected EOF"},
		"two messages":        {head: length(0), body: one, end: "0", want: "data after the message"},
		"a page of the web":   {status: http.StatusNotFound, want: "the server is not a gRPC server: HTTP status 404 Not Found"},
		"a field too long":    {head: length(3), body: []byte{0x0a, 0x05, 'a'}, end: "0", want: "longer than its message"},
		"a group":             {head: length(1), body: []byte{0x0b}, end: "0", want: "wire type 3"},
		"field zero":          {head: length(2), body: []byte{0x00, 0x00}, end: "0", want: "invalid field tag"},
		"an endless number":   {head: length(12), body: []byte("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), end: "0", want: "more than 64 bits"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := httpServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/grpc")
				w.WriteHeader(max(c.status, http.StatusOK))
				_, _ = w.Write(append(c.head, c.body...))
				if c.end != "" {
					w.Header().Set(http.TrailerPrefix+"Grpc-Status", c.end)
				}
			})
			require.ErrorContains(t, client.Call(t.Context(), method, func(Field) error { return nil }), c.want)
		})
	}
}

// length returns the header of a message with that many bytes.
func length(size int) []byte { return binary.BigEndian.AppendUint32([]byte{0}, uint32(size)) }

func TestCall_VisitFails_ItsError(t *testing.T) {
	t.Parallel()
	client := grpcServer(t, &lister{pods: []*podresources.PodResources{{Name: "a"}}})
	refused := errors.New("enough")
	require.ErrorIs(t, client.Call(t.Context(), method, func(Field) error { return refused }), refused)
	require.ErrorContains(t, client.Call(t.Context(), method, func(f Field) error {
		return f.Each(func(f Field) error { return f.Each(func(Field) error { return nil }) })
	}), "a protobuf message", "a text is read as a message")
}

func TestField_Number_NoText(t *testing.T) {
	t.Parallel()
	body := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7)
	body = protowire.AppendFixed32(protowire.AppendTag(body, 2, protowire.Fixed32Type), 0x01020304)
	body = protowire.AppendFixed64(protowire.AppendTag(body, 3, protowire.Fixed64Type), 0x0102030405060708)
	client := httpServer(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(append(length(len(body)), body...))
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	})
	var values []uint64
	require.NoError(t, client.Call(t.Context(), method, func(f Field) error {
		values = append(values, f.Value)
		_, err := f.Text()
		assert.ErrorContains(t, err, "must be a string")
		assert.ErrorContains(t, f.Each(nil), "must be a message")
		return nil
	}))
	require.Equal(t, []uint64{7, 0x01020304, 0x0102030405060708}, values)
}

// Memory does not depend on the size: all allocations, including the server's, are a fraction of a list of 128 MiB.
func TestCall_LongList_MemoryIsBounded(t *testing.T) { //nolint:paralleltest // counts what the process allocates
	const pods, size = 128, 1 << 20
	pod := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "pod")
	container := protowire.AppendString(protowire.AppendTag([]byte("\x0a\x04main"), 2, protowire.BytesType), strings.Repeat("d", 500))
	inPod := 0
	for ; len(pod) < size; inPod++ {
		pod = protowire.AppendBytes(protowire.AppendTag(pod, 3, protowire.BytesType), container)
	}
	pod = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), pod)
	client := httpServer(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(length(pods * len(pod)))
		for range pods {
			_, _ = w.Write(pod)
		}
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	containers := 0
	require.NoError(t, client.Call(t.Context(), method, func(f Field) error {
		return f.Each(func(f Field) error {
			if f.Number != 3 {
				return nil
			}
			containers++
			return f.Each(func(f Field) error {
				text, err := f.Text()
				if f.Number == 1 && string(text) != "main" {
					return errors.New(string(text))
				}
				return err
			})
		})
	}))
	runtime.ReadMemStats(&after)
	require.Equal(t, pods*inPod, containers, "every container")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(pods*size/2), "twice as much as needed: under the race detector sync.Pool drops entries")
}

// The client waits for a slow answer while parts of it arrive, but not for ever.
func TestCall_ServerIsSlow_WaitedForWhileItSends(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pauses []time.Duration
		want   string
	}{
		"slow":           {pauses: slices.Repeat([]time.Duration{4 * time.Second}, 10)},
		"silent":         {pauses: []time.Duration{6 * time.Second}, want: "no data received for 5s"},
		"silent at last": {pauses: []time.Duration{4 * time.Second, 4 * time.Second, 6 * time.Second}, want: "no data received for 5s"},
		"without an end": {pauses: slices.Repeat([]time.Duration{4 * time.Second}, 100), want: "no complete response within 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := Client{Quiet: 5 * time.Second, Longest: time.Minute}
				err := client.limit(t.Context(), func(ctx context.Context, more func()) error {
					for _, pause := range c.pauses {
						time.Sleep(pause)
						if ctx.Err() != nil {
							return io.ErrUnexpectedEOF // the error of a failed read
						}
						more()
					}
					return nil
				})
				if c.want == "" {
					require.NoError(t, err)
					return
				}
				require.EqualError(t, err, c.want)
			})
		})
	}
}

// If a server accepts a call and sends nothing, the call ends with the caller's context.
func TestCall_ContextEnds_Returns(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	client := httpServer(t, func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	require.ErrorIs(t, client.Call(ctx, method, nil), context.Canceled)
}
