package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// watched is a file that is watched.
type watched struct {
	t    *testing.T
	path string
	// calls receives the content that was read at each change.
	calls chan string
}

// watching begins to watch a file until the test ends.
func watching(t *testing.T, path string) *watched {
	t.Helper()
	w := &watched{t: t, path: path, calls: make(chan string, 1000)}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		Watch(ctx, path, func() {
			text, _ := os.ReadFile(path)
			w.calls <- string(text)
		}, func(err error) { t.Error(err) })
	})
	t.Cleanup(func() { stop(); running.Wait() })
	return w
}

// reads waits until a call reads this content.
func (w *watched) reads(want string) {
	w.t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case text := <-w.calls:
			if text == want {
				return
			}
		case <-limit:
			require.FailNow(w.t, "it was not read", want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// over replaces a file by another one.
func over(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	require.NoError(t, os.Rename(path+".new", path))
}

// link replaces a path by a link.
func link(t *testing.T, target, path string) {
	t.Helper()
	require.NoError(t, os.Symlink(target, path+".new"))
	require.NoError(t, os.Rename(path+".new", path))
}

// TestWatch_Changes_Reported: every change of the content at a path.
func TestWatch_Changes_Reported(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, dir string, w *watched){
		"it is written": func(t *testing.T, dir string, w *watched) {
			write(t, dir+"/node.yaml", "second")
			w.reads("second")
		},
		"it is replaced": func(t *testing.T, dir string, w *watched) {
			over(t, dir+"/node.yaml", "second")
			w.reads("second")
			over(t, dir+"/node.yaml", "third")
			w.reads("third")
		},
		"it goes and comes back": func(t *testing.T, dir string, w *watched) {
			require.NoError(t, os.Remove(dir+"/node.yaml"))
			w.reads("")
			write(t, dir+"/node.yaml", "second")
			w.reads("second")
		},
		"its folder goes and comes back": func(t *testing.T, dir string, w *watched) {
			require.NoError(t, os.RemoveAll(dir))
			w.reads("")
			require.NoError(t, os.MkdirAll(dir, 0o700))
			write(t, dir+"/node.yaml", "second")
			w.reads("second")
		},
		"its folder is replaced": func(t *testing.T, dir string, w *watched) {
			require.NoError(t, os.Rename(dir, dir+".old"))
			w.reads("")
			over(t, dir+".old/node.yaml", "second")
			require.NoError(t, os.Rename(dir+".old", dir))
			w.reads("second")
		},
		"it becomes a link": func(t *testing.T, dir string, w *watched) {
			elsewhere := t.TempDir() + "/other.yaml"
			write(t, elsewhere, "second")
			link(t, elsewhere, dir+"/node.yaml")
			w.reads("second")
			write(t, elsewhere, "third")
			w.reads("third")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "a", "b")
			require.NoError(t, os.MkdirAll(dir, 0o700))
			write(t, dir+"/node.yaml", "first")
			w := watching(t, dir+"/node.yaml")
			w.reads("first")
			change(t, dir, w)
		})
	}
}

// TestWatch_MountedConfigMap_Followed: its files are links below a link that the kubelet replaces.
func TestWatch_MountedConfigMap_Followed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	publish := func(version, text string) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		write(t, filepath.Join(dir, version, "node.yaml"), text)
		link(t, version, dir+"/..data")
	}
	publish("..1", "first")
	require.NoError(t, os.Symlink("..data/node.yaml", dir+"/node.yaml"))
	w := watching(t, dir+"/node.yaml")
	w.reads("first")
	publish("..2", "second")
	w.reads("second")
	require.NoError(t, os.RemoveAll(dir+"/..1"))
	publish("..3", "third")
	w.reads("third")
	require.NoError(t, os.RemoveAll(dir+"/..2"))
	publish("..4", "fourth")
	w.reads("fourth")
}

// TestWatch_Absent_WaitsForIt: a directory on the path may be missing.
func TestWatch_Absent_WaitsForIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := watching(t, dir+"/a/b/node.yaml")
	w.reads("")
	require.NoError(t, os.MkdirAll(dir+"/a/b", 0o700))
	write(t, dir+"/a/b/node.yaml", "first")
	w.reads("first")
}

// TestWatch_OtherFiles_NotReported: changes of other files in the same directory are ignored.
func TestWatch_OtherFiles_NotReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/node.yaml", "first")
	w := watching(t, dir+"/node.yaml")
	w.reads("first")
	for range 10 {
		write(t, dir+"/other.yaml", "first")
	}
	over(t, dir+"/node.yaml", "second")
	assert.Equal(t, "second", <-w.calls)
}

func TestWatch_LinkToItself_StepsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "node.yaml")
	require.NoError(t, os.Symlink("node.yaml", path))
	steps, err := way(path)
	require.NoError(t, err)
	assert.Len(t, steps, mostLinks+1)
}

// TestWatch_NotPossible_ReadAtIntervals: the failure is reported once.
func TestWatch_NotPossible_ReadAtIntervals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute+time.Second)
		defer stop()
		full := errors.New("too many open files")
		changed, said, tries := 0, []error{}, 0
		persist(ctx, func() error { tries++; return full }, func() { changed++ }, func(err error) { said = append(said, err) })
		assert.Equal(t, []error{full}, said)
		assert.Equal(t, int(time.Minute/rewatch), changed)
		assert.Equal(t, changed+1, tries)
	})
}
