package profile_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// random returns content that differs at every offset.
func random(size int) []byte {
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content)
	return content
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestDownload_SeveralPieces_Verified(t *testing.T) {
	s, dir := newServer(t), filepath.Join(t.TempDir(), "new", "folder")
	content := random(2*maxRange + 5)
	s.add("a-1", content)
	out, errOut, err := s.run(t.Context(), t, "download", "a-1", "-O", dir)
	require.NoError(t, err)
	assert.Empty(t, errOut, "progress is shown on a terminal only")
	assert.Equal(t, dir+"/a-1.nsys-rep: report a-1 downloaded, sha256 verified\n", out)
	got, err := os.ReadFile(filepath.Join(dir, "a-1.nsys-rep"))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(content, got))
	assert.Equal(t, []string{"a-1.nsys-rep"}, files(t, dir))
	asked := s.asked("GET " + apis + "/namespaces/team/reports/a-1/content")
	require.Len(t, asked, 3)
	assert.True(t, strings.HasSuffix(asked[1], "bytes=16777216-33554431"), asked[1])

	out, _, err = s.run(t.Context(), t, "download", "report.profiles.gpu.prism.dev/a-1", "-O", dir)
	require.NoError(t, err)
	assert.Equal(t, dir+"/a-1.nsys-rep: report a-1 already exists, sha256 verified\n", out)
	assert.Len(t, s.asked("GET "+apis+"/namespaces/team/reports/a-1/content"), 3, "nothing is downloaded again")
}

// TestDownload_Killed_Resumes: the first download is interrupted in its second piece; the next download requests only the rest.
func TestDownload_Killed_Resumes(t *testing.T) {
	s, dir := newServer(t), t.TempDir()
	content := random(2*maxRange + 5)
	s.add("a-1", content)
	ctx, kill := context.WithCancel(t.Context())
	half := maxRange + maxRange/2
	s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.Header.Get("Range"), "bytes=16777216-") {
			return false
		}
		w.Header().Set("Content-Range", "bytes 16777216-33554431/*")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(content[maxRange:half])
		w.(http.Flusher).Flush()
		kill()
		<-r.Context().Done()
		return true
	}
	_, errOut, err := s.run(ctx, t, "download", "a-1", "-O", dir)
	require.EqualError(t, err, "1 of 1 reports were not downloaded")
	assert.Contains(t, errOut, "interrupted; ")
	part := files(t, dir)
	require.Len(t, part, 1)
	assert.Regexp(t, `^a-1\.nsys-rep\.[0-9a-f]{12}\.part$`, part[0])
	kept, err := os.ReadFile(filepath.Join(dir, part[0]))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(kept), maxRange)
	assert.Contains(t, errOut, "and the next download resumes from there")

	s.intercept = nil
	before := len(s.asked("GET " + apis + "/namespaces/team/reports/a-1/content"))
	out, _, err := s.run(t.Context(), t, "download", "a-1", "-O", dir)
	require.NoError(t, err)
	assert.Contains(t, out, "downloaded, resumed an earlier download, sha256 verified")
	got, err := os.ReadFile(filepath.Join(dir, "a-1.nsys-rep"))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(content, got))
	assert.Equal(t, []string{"a-1.nsys-rep"}, files(t, dir))
	asked := s.asked("GET " + apis + "/namespaces/team/reports/a-1/content")[before:]
	assert.NotContains(t, strings.Join(asked, " "), "bytes=0-")
}

func TestDownload_ConnectionBreaks_TriesAgain(t *testing.T) {
	s, dir := newServer(t), t.TempDir()
	content := random(1 << 20)
	s.add("a-1", content)
	broken := false
	s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if broken || r.Header.Get("Range") == "" {
			return false
		}
		broken = true
		w.Header().Set("Content-Range", "bytes 0-1048575/1048576")
		w.Header().Set("Content-Length", "1048576")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(content[:1<<19])
		return true // less than announced: the connection breaks
	}
	_, _, err := s.run(t.Context(), t, "download", "a-1", "-O", dir)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "a-1.nsys-rep"))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(content, got))
}

func TestDownload_CorruptBytes_Discarded(t *testing.T) {
	s, dir := newServer(t), t.TempDir()
	r := s.add("a-1", random(1000))
	s.content[r.Name][500] ^= 1
	_, errOut, err := s.run(t.Context(), t, "download", "a-1", "-O", dir, "--remove-source")
	require.EqualError(t, err, "1 of 1 reports were not downloaded")
	assert.Regexp(t, `error: downloading report a-1: checksum mismatch: got sha256 [0-9a-f]{64}, want [0-9a-f]{64}; the file is discarded, download it again`, errOut)
	assert.Empty(t, files(t, dir))
	assert.Empty(t, s.asked("DELETE"), "the source is removed after verification only")
}

func TestDownload_ContentChanged_Refused(t *testing.T) {
	s, dir := newServer(t), t.TempDir()
	s.add("a-1", random(1000))
	s.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/content") {
			s.reports[0].Status.SHA256 = strings.Repeat("0", 64)
		}
		return false
	}
	_, errOut, err := s.run(t.Context(), t, "download", "a-1", "-O", dir)
	require.Error(t, err)
	assert.Equal(t, "error: downloading report a-1 in namespace team: the report changed since it was listed; download it again\n", errOut)
	assert.Empty(t, files(t, dir), "an empty partial file is not left")
}

func TestDownload_OtherFileThere_OnlyForced(t *testing.T) {
	s, dir := newServer(t), t.TempDir()
	s.add("a-1", random(1000))
	mine := filepath.Join(dir, "a-1.nsys-rep")
	require.NoError(t, os.WriteFile(mine, []byte("mine"), 0o600))
	_, errOut, err := s.run(t.Context(), t, "download", "--all", "-O", dir)
	require.Error(t, err)
	assert.Equal(t, "error: writing "+mine+": a different file of that name exists; overwrite it with --force, or choose another directory with --output\n", errOut)
	kept, err := os.ReadFile(mine)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(kept))
	_, _, err = s.run(t.Context(), t, "download", "--all", "-O", dir, "--force")
	require.NoError(t, err)
	kept, err = os.ReadFile(mine)
	require.NoError(t, err)
	assert.Equal(t, s.content["a-1"], kept)
}

func TestDownload_RemoveSource_AfterVerification(t *testing.T) {
	s, dir := newServer(t), t.TempDir()
	s.add("a-1", random(1000))
	s.add("b-2", random(10))
	out, _, err := s.run(t.Context(), t, "download", "--pod", "train", "-O", dir, "--remove-source")
	require.NoError(t, err)
	assert.Contains(t, out, `report.profiles.gpu.prism.dev "a-1" of namespace team removed`)
	assert.Empty(t, s.reports)
	assert.Equal(t, []string{"a-1.nsys-rep", "b-2.nsys-rep"}, files(t, dir))
}

func TestDownload_Selected_LeavesOutWhatIsNotComplete(t *testing.T) {
	s, dir := newServer(t), t.TempDir()
	s.add("a-1", random(10))
	s.add("b-2", nil).Status.State = "Recording"
	r := s.add("c-3", nil)
	r.Status.State, r.Status.Reason, r.Status.Message = "Lost", "\x1bKilled", "nsys\x1b ended"
	out, errOut, err := s.run(t.Context(), t, "download", "--pod", "train", "-O", dir)
	require.NoError(t, err)
	assert.Contains(t, out, "report a-1 downloaded")
	assert.Equal(t, "Report b-2 of namespace team is skipped: it is Recording: it is complete when its process exits or the recording ends\n"+
		`Report c-3 of namespace team is skipped: it is Lost, without a file: \x1bKilled (nsys\x1b ended)`+"\n", errOut)
	_, _, err = s.run(t.Context(), t, "download", "b-2", "-O", dir)
	require.EqualError(t, err, "1 of 1 reports were not downloaded")
}

func TestDownload_NameUnknown_SaysWhetherNodesWereSilent(t *testing.T) {
	s := newServer(t)
	_, _, err := s.run(t.Context(), t, "download", "a-1")
	require.EqualError(t, err, "reading report a-1 in namespace team: the report does not exist; kubectl prism profile list prints the existing ones")
	s.silent = []string{"node-9"}
	_, _, err = s.run(t.Context(), t, "download", "a-1")
	require.EqualError(t, err, "reading report a-1 in namespace team: nodes that did not answer: node-9")
	_, _, err = s.run(t.Context(), t, "download")
	require.ErrorContains(t, err, "no reports are selected: ")
	_, _, err = s.run(t.Context(), t, "download", "a-1", "--pod", "x")
	require.ErrorContains(t, err, "names of reports and flags that select them are mutually exclusive")
	for _, name := range []string{"pod/a", "../a", "a/b/c", "A"} {
		_, _, err = s.run(t.Context(), t, "download", name)
		require.ErrorContains(t, err, "kubectl prism profile list prints the names")
	}
}

func TestRemove_Named_SaysWhatItRemoved(t *testing.T) {
	s := newServer(t)
	s.add("a-1", nil)
	s.add("b-2", nil).Status.State = "Recording"
	out, errOut, err := s.run(t.Context(), t, "rm", "--all")
	require.NoError(t, err)
	assert.Equal(t, "report.profiles.gpu.prism.dev \"a-1\" of namespace team removed\n", out)
	assert.Equal(t, "Report b-2 of namespace team is kept: it is Recording\n", errOut)
	_, errOut, err = s.run(t.Context(), t, "rm", "b-2")
	require.EqualError(t, err, "1 of 1 reports were not removed")
	assert.Equal(t, "error: deleting report b-2 in namespace team: report b-2 is Recording\n", errOut)
	_, _, err = s.run(t.Context(), t, "rm")
	require.ErrorContains(t, err, "no reports are selected: ")
}

func TestDownload_ContainerGone_SaysSo(t *testing.T) {
	s, dir := newServer(t), t.TempDir()
	s.add("a-1", nil).Status.Path = "/out/a.nsys-rep"
	_, errOut, err := s.run(t.Context(), t, "download", "a-1", "-O", dir)
	require.Error(t, err)
	assert.Equal(t, "error: downloading report a-1 from container main of pod team/train: the pod no longer exists: the report was deleted with its "+
		"container, unless output.path was in a volume; with output type Node reports outlive their pods\n", errOut)
	s.objects["/api/v1/namespaces/team/pods/train"] = map[string]any{
		"kind": "Pod", "apiVersion": "v1", "metadata": metav1.ObjectMeta{Name: "train", Namespace: "team"},
		"status": map[string]any{"containerStatuses": []any{map[string]any{"name": "main", "state": map[string]any{"terminated": map[string]any{}}}}},
	}
	_, errOut, err = s.run(t.Context(), t, "download", "a-1", "-O", dir)
	require.Error(t, err)
	assert.Contains(t, errOut, "the container is not running, so its files cannot be read: ")
	assert.Empty(t, files(t, dir))
}
