package tool

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// volume returns an importer whose work directory is like the kubelet's volumes: every user may rename its entries.
func volume(t *testing.T, script string) (i Importer, raw, report string) {
	t.Helper()
	i = importerOf(t, image(t, "1", script))
	require.NoError(t, os.Chmod(i.Work, 0o777))
	dir := t.TempDir()
	raw, report = filepath.Join(dir, "a.qdstrm"), filepath.Join(dir, "a.nsys-rep")
	require.NoError(t, os.WriteFile(raw, []byte("recorded"), 0o600))
	return i, raw, report
}

// TestImport_Directories_ImporterMakesNoEntries: outside of the directory of its import: this program, as root, would follow its links.
func TestImport_Directories_ImporterMakesNoEntries(t *testing.T) {
	t.Parallel()
	i, raw, report := volume(t, `cat "$2" > "$4"
for dir in "$PWD" "$PWD/.."; do touch "$dir/../made" && exit 3; mv "$(realpath "$dir")" "$(realpath "$dir/..")/moved" && exit 4; done
ls "$PWD/.." && exit 5
exit 0`)
	require.NoError(t, i.Import(t.Context(), raw, report))
	for path, want := range map[string]os.FileMode{i.Work: 0o755, filepath.Join(i.Work, ownFolder): 0o711} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, want|os.ModeDir, info.Mode())
	}
}

// TestOwn_NotOfThisProgram_Refused: an importer of an earlier version may have left anything in the volume.
func TestOwn_NotOfThisProgram_Refused(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(path string) error{
		"link": func(path string) error { return os.Symlink("/etc", path) },
		"file": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"another user's": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o700), os.Chown(path, unprivileged, unprivileged))
		},
	} {
		i, raw, report := volume(t, copies)
		require.NoError(t, make(filepath.Join(i.Work, ownFolder)))
		require.ErrorContains(t, i.Import(t.Context(), raw, report), "must be a directory owned by this program", name)
	}
}

// TestHandOver_DirectoryReplaced_ReportOfTheImport: the directory was opened before the importer ran.
func TestHandOver_DirectoryReplaced_ReportOfTheImport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	made, other, to := filepath.Join(dir, "made"), filepath.Join(dir, "other"), filepath.Join(dir, "to")
	for path, content := range map[string]string{made: "report", other: "secret"} {
		require.NoError(t, os.Mkdir(path, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(path, madeFile), []byte(content), 0o600))
	}
	root, err := os.OpenRoot(made)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	require.NoError(t, os.Rename(made, made+".moved"))
	require.NoError(t, os.Symlink(other, made))
	require.NoError(t, handOver(root, to, spare))
	content, err := os.ReadFile(to)
	require.NoError(t, err)
	assert.Equal(t, "report", string(content))
}

// TestImport_StartedProcesses_EndWithTheImporter: even in their own sessions: they could read the next import.
func TestImport_StartedProcesses_EndWithTheImporter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ end, want string }{
		"exits": {`cat "$2" > "$4"`, ""}, "fails": {"exit 2", "exit status 2"}, "too long": {"sleep 1000", "took longer than"},
	} {
		mark := strconv.Itoa(1000+len(name)) + "." + strconv.Itoa(os.Getpid()) // unique for this run
		i, raw, report := volume(t, "setsid sleep "+mark+" >/dev/null 2>&1 &\nuntil grep -qsaz ^"+mark+"$ /proc/[0-9]*/cmdline; do :; done\n"+c.end)
		if name == "too long" {
			i.Deadline = 2 * time.Second
		}
		err := i.Import(t.Context(), raw, report)
		if c.want == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.want, name)
		}
		assert.False(t, runs(t, mark), name)
	}
}

// runs reports whether a process with this text in its command line exists.
func runs(t *testing.T, mark string) bool {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err == nil && bytes.Contains(line, []byte("sleep\x00"+mark)) {
			return true
		}
	}
	return false
}

// TestImport_Space_Bounded: a volume above its limit would evict the whole pod.
func TestImport_Space_Bounded(t *testing.T) {
	t.Parallel()
	many := `for i in $(seq 1 60); do head -c 1000000 /dev/zero > "$i"; done; sleep 1000`
	for name, c := range map[string]struct {
		script string
		size   int64
		want   string
	}{
		"fits":               {copies, 8, ""},
		"raw file too large": {copies, 4 << 20, "profiler.importSpace allows"},
		"many files":         {many, 8, "QdstrmImporter: the importer wrote more than profiler.importSpace allows"},
	} {
		i, raw, report := volume(t, c.script)
		i.Space = spare + 8<<20
		if name == "many files" {
			i.Space = spare/2 + 40<<20
		}
		require.NoError(t, os.Truncate(raw, c.size))
		err := i.Import(t.Context(), raw, report)
		if c.want == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.want, name)
		}
	}
}

// TestTaken_ManyFiles_TooMuch: empty files take time.
func TestTaken_ManyFiles_TooMuch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, os.Symlink("/", filepath.Join(dir, "link")))
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	assert.Less(t, taken(root, maxMade), int64(1<<20), "links are not followed")
	assert.Greater(t, taken(root, 3), int64(1<<60))
}
