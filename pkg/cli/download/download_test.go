package download_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cli/download"
)

var errAgain = errors.New("again")

// source serves one report; its first responses fail.
type source struct {
	content  []byte
	failures []error
	asked    int
}

func (s *source) Content(_ context.Context, _ *v1alpha1.Report, offset, length int64) (io.ReadCloser, error) {
	s.asked++
	if len(s.failures) > 0 {
		err := s.failures[0]
		s.failures = s.failures[1:]
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(s.content[offset:min(int64(len(s.content)), offset+length)])), nil
}

func (s *source) Copy(_ context.Context, _ *v1alpha1.Report, to io.Writer) error {
	_, err := to.Write(s.content)
	return err
}

func reportOf(content []byte) *v1alpha1.Report {
	sum := sha256.Sum256(content)
	return &v1alpha1.Report{
		ObjectMeta: metav1.ObjectMeta{Name: "id-1"},
		Status:     v1alpha1.ReportStatus{State: "Ready", Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])},
	}
}

func downloads(t *testing.T, s *source, dir string) *download.Downloads {
	t.Helper()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return &download.Downloads{
		Source: s, Dir: root, Root: dir, Wait: time.Microsecond, Again: func(err error) bool { return errors.Is(err, errAgain) },
	}
}

func partOf(r *v1alpha1.Report) string { return "x.nsys-rep." + r.Status.SHA256[:12] + ".part" }

func TestFetch_NoAnswerForAWhile_TriedAgainButNotForEver(t *testing.T) {
	s, dir := &source{content: []byte("content"), failures: []error{errAgain, errAgain, errAgain, errAgain}}, t.TempDir()
	outcome, verified, err := downloads(t, s, dir).Fetch(t.Context(), reportOf(s.content), "x.nsys-rep")
	require.NoError(t, err)
	assert.Equal(t, download.Downloaded, outcome)
	assert.True(t, verified)
	s.failures = []error{errAgain, errAgain, errAgain, errAgain, errAgain, errAgain}
	_, _, err = downloads(t, s, t.TempDir()).Fetch(t.Context(), reportOf(s.content), "x.nsys-rep")
	require.ErrorIs(t, err, errAgain)
	assert.Len(t, s.failures, 1)
	s.failures, s.asked = []error{errors.New("refused")}, 0
	_, _, err = downloads(t, s, t.TempDir()).Fetch(t.Context(), reportOf(s.content), "x.nsys-rep")
	require.EqualError(t, err, "refused")
	assert.Equal(t, 1, s.asked)
}

// TestFetch_NothingSent_Ends: a server with empty responses is asked a few times.
func TestFetch_NothingSent_Ends(t *testing.T) {
	s := &source{}
	_, _, err := downloads(t, s, t.TempDir()).Fetch(t.Context(), reportOf([]byte("content")), "x.nsys-rep")
	require.ErrorContains(t, err, "the server sent no data")
	assert.Equal(t, 5, s.asked)
}

func TestFetch_PartialFiles_ContinuedOrBegunAgain(t *testing.T) {
	content := []byte("the whole content")
	for name, c := range map[string]struct {
		part    string
		outcome download.Outcome
		fails   bool
	}{
		"none":             {"", download.Downloaded, false},
		"a part":           {"the whole", download.Resumed, false},
		"all of it":        {"the whole content", download.Resumed, false},
		"longer":           {"the whole content and more", download.Downloaded, false},
		"of other content": {"XXX", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir, r := &source{content: content}, t.TempDir(), reportOf(content)
			if c.part != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, partOf(r)), []byte(c.part), 0o600))
			}
			d := downloads(t, s, dir)
			outcome, _, err := d.Fetch(t.Context(), r, "x.nsys-rep")
			assert.Equal(t, c.outcome, outcome)
			if c.fails {
				require.ErrorContains(t, err, "is discarded")
				_, _, err = d.Fetch(t.Context(), r, "x.nsys-rep")
			}
			require.NoError(t, err)
			got, err := os.ReadFile(filepath.Join(dir, "x.nsys-rep"))
			require.NoError(t, err)
			assert.Equal(t, content, got)
			assert.NoFileExists(t, filepath.Join(dir, partOf(r)))
		})
	}
}

// TestFetch_Links_NothingWrittenThrough: a link in the folder does not lead to foreign files.
func TestFetch_Links_NothingWrittenThrough(t *testing.T) {
	content := []byte("content")
	r := reportOf(content)
	for name, link := range map[string]string{"partial file": partOf(r), "file": "x.nsys-rep"} {
		for _, target := range []string{"victim", filepath.Join(t.TempDir(), "outside")} {
			t.Run(name, func(t *testing.T) {
				dir := t.TempDir()
				victim := target
				if !filepath.IsAbs(victim) {
					victim = filepath.Join(dir, victim)
				}
				require.NoError(t, os.WriteFile(victim, []byte("mine"), 0o600))
				require.NoError(t, os.Symlink(target, filepath.Join(dir, link)))
				_, _, err := downloads(t, &source{content: content}, dir).Fetch(t.Context(), r, "x.nsys-rep")
				require.Error(t, err)
				got, err := os.ReadFile(victim)
				require.NoError(t, err)
				assert.Equal(t, "mine", string(got))
			})
		}
	}
}

// TestFetch_FileAppearsMeanwhile_Kept: another program writes a file of that name while the report is downloaded.
func TestFetch_FileAppearsMeanwhile_Kept(t *testing.T) {
	dir, mine := t.TempDir(), ""
	mine = filepath.Join(dir, "x.nsys-rep")
	d := downloads(t, &source{content: []byte("content")}, dir)
	d.Progress = func(string, int64, int64) { assert.NoError(t, os.WriteFile(mine, []byte("mine"), 0o600)) }
	_, _, err := d.Fetch(t.Context(), reportOf([]byte("content")), "x.nsys-rep")
	require.ErrorContains(t, err, "writing "+mine+": file exists")
	got, err := os.ReadFile(mine)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(got))
}

func TestFetch_InContainer_ComparedWithWhatIsKnown(t *testing.T) {
	content := []byte("content")
	for name, c := range map[string]struct {
		change   func(r *v1alpha1.Report)
		content  string
		verified bool
		want     string
	}{
		"sha256 unknown": {func(r *v1alpha1.Report) { r.Status.SHA256, r.Status.Size = "", 0 }, "content", false, ""},
		"sha256 known":   {func(*v1alpha1.Report) {}, "content", true, ""},
		"truncated":      {func(r *v1alpha1.Report) { r.Status.SHA256 = "" }, "cont", false, "its size is 4 bytes"},
		"replaced":       {func(*v1alpha1.Report) {}, "CONTENT", true, "is not the report"},
		"empty":          {func(r *v1alpha1.Report) { r.Status.SHA256, r.Status.Size = "", 0 }, "", false, "its size is 0 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, r := t.TempDir(), reportOf(content)
			r.Status.Path = "/out/x"
			c.change(r)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "x.nsys-rep.id-1.part"), []byte("older and longer"), 0o600))
			_, verified, err := downloads(t, &source{content: []byte(c.content)}, dir).Fetch(t.Context(), r, "x.nsys-rep")
			assert.NoFileExists(t, filepath.Join(dir, "x.nsys-rep.id-1.part"))
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				assert.NoFileExists(t, filepath.Join(dir, "x.nsys-rep"))
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.verified, verified)
			assert.FileExists(t, filepath.Join(dir, "x.nsys-rep"))
		})
	}
}

// TestFetch_OtherFileOfTheSize_NotTheReport: it is refused, and overwritten with Force; equal sizes are not sufficient.
func TestFetch_OtherFileOfTheSize_NotTheReport(t *testing.T) {
	content := []byte("content")
	inContainer := reportOf(content)
	inContainer.Status.Path, inContainer.Status.SHA256 = "/out/x.nsys-rep", ""
	for name, r := range map[string]*v1alpha1.Report{"on a node": reportOf(content), "in a container": inContainer} {
		t.Run(name, func(t *testing.T) {
			dir, s := t.TempDir(), &source{content: content}
			mine := filepath.Join(dir, "x.nsys-rep")
			require.NoError(t, os.WriteFile(mine, []byte("other!!"), 0o600))
			d := downloads(t, s, dir)
			_, _, err := d.Fetch(t.Context(), r, "x.nsys-rep")
			require.ErrorContains(t, err, "a different file of that name exists; overwrite it with --force")
			got, err := os.ReadFile(mine)
			require.NoError(t, err)
			assert.Equal(t, "other!!", string(got))
			d.Force = true
			outcome, _, err := d.Fetch(t.Context(), r, "x.nsys-rep")
			require.NoError(t, err)
			assert.Equal(t, download.Downloaded, outcome)
			got, err = os.ReadFile(mine)
			require.NoError(t, err)
			assert.Equal(t, "content", string(got))
		})
	}
}

// large is a report in a container with an endless file.
type large struct {
	source
	sent int64
}

func (l *large) Copy(_ context.Context, _ *v1alpha1.Report, to io.Writer) error {
	for piece := make([]byte, 1<<20); ; l.sent += int64(len(piece)) {
		if _, err := to.Write(piece); err != nil {
			return err
		}
	}
}

func TestFetch_LargerThanTheReport_EndsAtATenthMore(t *testing.T) {
	dir, l := t.TempDir(), &large{}
	r := reportOf(nil)
	r.Status.Path, r.Status.SHA256, r.Status.Size = "/dev/zero.nsys-rep", "", 20<<20
	d := downloads(t, &l.source, dir)
	d.Source = l
	_, _, err := d.Fetch(t.Context(), r, "x.nsys-rep")
	require.ErrorContains(t, err, "the file in the container is not the report: it is larger than ")
	assert.EqualValues(t, 22<<20, l.sent)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}
