package profile_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// endless is the content of an endless file.
const endless = "endless"

// executes answers requests to execute a program in pod train, as the API server does: with the content of a file, or with the output and
// exit code of the program.
func (s *server) executes(t *testing.T, content, said string, code int) {
	t.Helper()
	s.objects["/api/v1/namespaces/team/pods/train"] = map[string]any{
		"kind": "Pod", "apiVersion": "v1", "metadata": metav1.ObjectMeta{Name: "train", Namespace: "team"},
		"spec": corev1.PodSpec{
			ResourceClaims: []corev1.PodResourceClaim{{Name: "of-the-pod", ResourceClaimName: new("gpu")}},
			Containers: []corev1.Container{
				{Name: "main", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "of-the-pod"}}}}, {Name: "sidecar"},
			},
		},
		"status": map[string]any{"containerStatuses": []any{
			map[string]any{"name": "main", "state": map[string]any{"running": map[string]any{}}},
			map[string]any{"name": "sidecar", "state": map[string]any{"running": map[string]any{}}},
		}},
	}
	s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/pods/train/exec") {
			return false
		}
		query := r.URL.Query()
		assert.Equal(t, []string{"cat", "/out/a b;$(x)"}, query["command"], "no shell reads the name")
		assert.Equal(t, "main", query.Get("container"))
		// The channels are stdin, stdout, stderr, error and resize.
		conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{"v5.channel.k8s.io": {Binary: true, Channels: []wsstream.ChannelType{
			wsstream.IgnoreChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.IgnoreChannel,
		}}})
		_, streams, err := conn.Open(w, r)
		if !assert.NoError(t, err) {
			return true
		}
		defer func() { _ = conn.Close() }()
		for content == endless {
			if _, err := streams[1].Write(make([]byte, 1<<10)); err != nil {
				return true
			}
		}
		_, _ = streams[1].Write([]byte(content))
		_, _ = streams[2].Write([]byte(said))
		status := metav1.Status{Status: metav1.StatusSuccess}
		if code != 0 {
			status = metav1.Status{
				Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Message: fmt.Sprintf("command terminated with exit code %d", code),
				Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: fmt.Sprint(code)}}},
			}
		}
		raw, err := json.Marshal(status)
		assert.NoError(t, err)
		_, _ = streams[3].Write(raw)
		return true
	}
}

func TestDownload_InContainer_CopiedWhileItRuns(t *testing.T) {
	s, dir := newServer(t), t.TempDir()
	r := s.add("a-1", nil)
	r.Status.Path, r.Status.File, r.Status.SHA256, r.Status.Size = "/out/a b;$(x)", "", "", 0
	s.executes(t, "the report", "", 0)
	out, _, err := s.run(t.Context(), t, "download", "a-1", "-O", dir, "--remove-source")
	require.NoError(t, err)
	assert.Equal(t, dir+"/a_b___x_.nsys-rep: report a-1 downloaded, 10 bytes, not verified: the node does not store the sha256 of reports in containers\n", out)
	assert.Empty(t, s.asked("DELETE"), "what is not verified is not removed")
	got, err := os.ReadFile(filepath.Join(dir, "a_b___x_.nsys-rep"))
	require.NoError(t, err)
	assert.Equal(t, "the report", string(got))
}

func TestDownload_InContainerFails_SaysWhy(t *testing.T) {
	for said, want := range map[string]string{
		"cat: can't open '\x1b[2J': No such file\n": `: cat /out/a b;$(x): cat: can't open '\x1b[2J': No such file` + "\n",
		"": "command terminated with exit code 1; copying the file from the container requires cat in the image; without it, mount a volume at " +
			"output.path, or use output type Node\n",
	} {
		s, dir := newServer(t), t.TempDir()
		r := s.add("a-1", nil)
		r.Status.Path, r.Status.File, r.Status.SHA256, r.Status.Size = "/out/a b;$(x)", "", "", 0
		s.executes(t, "part of it", said, 1)
		_, errOut, err := s.run(t.Context(), t, "download", "a-1", "-O", dir)
		require.Error(t, err)
		assert.Contains(t, errOut, want)
		assert.Empty(t, files(t, dir), "a part of a report in a container cannot be continued")
	}
}

// TestDownload_LongErrorOfContainer_FirstBytes: a container may write any amount.
func TestDownload_LongErrorOfContainer_FirstBytes(t *testing.T) {
	s, dir := newServer(t), t.TempDir()
	r := s.add("a-1", nil)
	r.Status.Path, r.Status.File, r.Status.SHA256, r.Status.Size = "/out/a b;$(x)", "", "", 0
	s.executes(t, "", strings.Repeat("long ", 1<<17), 1)
	_, errOut, err := s.run(t.Context(), t, "download", "a-1", "-O", dir)
	require.Error(t, err)
	assert.Contains(t, errOut, ": cat /out/a b;$(x): long long")
	assert.Less(t, len(errOut), 16<<10)
}

// TestDownload_EndlessFileInContainer_Ended: at most a tenth more than the size of the report is read.
func TestDownload_EndlessFileInContainer_Ended(t *testing.T) {
	s, dir := newServer(t), t.TempDir()
	r := s.add("a-1", nil)
	r.Status.Path, r.Status.File, r.Status.SHA256, r.Status.Size = "/out/a b;$(x)", "", "", 10<<10
	s.executes(t, endless, "", 0)
	_, errOut, err := s.run(t.Context(), t, "download", "a-1", "-O", dir)
	require.Error(t, err)
	assert.Contains(t, errOut, "downloading report a-1: the file in the container is not the report: it is larger than 11264 bytes, the report is "+
		"10240; copy it with kubectl cp if you need it anyway\n")
	assert.Empty(t, files(t, dir))
}

// TestDownload_OtherContainer_NothingRead: the recording container chose the names of pod and container.
func TestDownload_OtherContainer_NothingRead(t *testing.T) {
	for container, claim := range map[string]string{"sidecar": "gpu", "main": "other"} {
		s, dir := newServer(t), t.TempDir()
		r := s.add("a-1", nil)
		r.Spec.Container, r.Spec.Claim = container, claim
		r.Status.Path, r.Status.File, r.Status.SHA256, r.Status.Size = "/out/a b;$(x)", "", "", 0
		s.executes(t, "a secret", "", 0)
		_, errOut, err := s.run(t.Context(), t, "download", "a-1", "-O", dir)
		require.Error(t, err)
		assert.Contains(t, errOut, "container "+container+" of that pod does not use claim "+claim+": ")
		assert.Empty(t, s.asked("GET /api/v1/namespaces/team/pods/train/exec"))
		assert.Empty(t, s.asked("POST /api/v1/namespaces/team/pods/train/exec"))
		assert.Empty(t, files(t, dir))
	}
}
