package tool

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// importAll is the argument with which the test's program imports waiting files, as the service that is killed.
const importAll = "import-all"

// attempts is the number of starts until the service is killed at a change: on a loaded machine it may exit before that.
const attempts = 10

// TestSpool_KilledAnywhere_NothingLost: the service is killed at each change of the spool, of the tries and of its own directory; the
// importer exits with it. The next service writes the report, and nothing else remains.
func TestSpool_KilledAnywhere_NothingLost(t *testing.T) {
	t.Parallel()
	changes, killed := 0, 0
	_ = imported(t, func(service *exec.Cmd, dirs []string) bool {
		changes = changesOf(t, service, dirs)
		return false
	})
	require.Greater(t, changes, 5)
	for at := range changes {
		for range attempts {
			if imported(t, func(service *exec.Cmd, dirs []string) bool { return killedAt(t, at, dirs, service) }) {
				killed++
				break
			}
		}
	}
	assert.Greater(t, killed, changes*2/3, "of %d changes", changes)
	t.Logf("killed at %d of %d changes", killed, changes)
}

// imported runs the service for one report, and then the next service. It returns the result of run.
func imported(t *testing.T, run func(service *exec.Cmd, dirs []string) bool) bool {
	t.Helper()
	s, folder, _ := spool(t, map[string]string{"a": "recorded"}, nil)
	i := importerOf(t, image(t, "1", copies))
	own, err := i.Own()
	require.NoError(t, err)
	killed := run(exec.Command(i.Self, importAll, s.Profiles, s.Tries, i.Path, i.Work), []string{folder, s.Tries, own})
	s.Import = i.Import
	require.NoError(t, errors.Join(i.Clean(), s.clean()))
	drain(t, s)
	report, err := os.ReadFile(filepath.Join(folder, "a.nsys-rep"))
	require.NoError(t, err)
	assert.Equal(t, "recorded", string(report))
	for dir, want := range map[string][]string{folder: {"a.nsys-rep", "a.qdstrm"}, own: nil} {
		assert.Equal(t, want, names(t, dir))
	}
	return killed
}

func watching(t *testing.T, dirs []string) *fsnotify.Watcher {
	t.Helper()
	watcher, err := fsnotify.NewWatcher()
	require.NoError(t, err)
	t.Cleanup(func() { _ = watcher.Close() })
	for _, dir := range dirs {
		require.NoError(t, watcher.Add(dir))
	}
	return watcher
}

// changesOf runs a program and counts its changes in the directories.
func changesOf(t *testing.T, command *exec.Cmd, dirs []string) (changes int) {
	t.Helper()
	watcher := watching(t, dirs)
	command.Stderr = os.Stderr
	require.NoError(t, command.Start())
	last := filepath.Join(dirs[0], ".last")
	go func() {
		assert.NoError(t, command.Wait())
		assert.NoError(t, os.Mkdir(last, 0o700))
	}()
	limit := time.After(10 * time.Minute)
	for {
		select {
		case event := <-watcher.Events:
			if event.Name == last {
				require.NoError(t, os.Remove(last))
				return changes
			}
			changes++
		case <-limit:
			require.NoError(t, command.Process.Kill())
			require.Fail(t, "the service does not end")
		}
	}
}

// killedAt runs a program and kills it after a number of changes in the directories. It returns false if the program exited before.
func killedAt(t *testing.T, changes int, dirs []string, command *exec.Cmd) bool {
	t.Helper()
	watcher := watching(t, dirs)
	command.Stderr = os.Stderr
	require.NoError(t, command.Start())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	limit := time.After(10 * time.Minute)
	for left := changes; left > 0; left-- {
		select {
		case <-watcher.Events:
		case err := <-ended:
			require.NoError(t, err)
			return false
		case <-limit:
			require.NoError(t, command.Process.Kill())
			require.Fail(t, "the service does not end")
		}
	}
	require.NoError(t, ignoreEnded(command.Process.Signal(syscall.SIGKILL)))
	err := <-ended
	if err != nil {
		require.ErrorContains(t, err, "killed")
	}
	return err != nil
}

func ignoreEnded(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// names returns the entries of a directory, without the file of the rotation.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

// importWaiting runs the service in a separate process: PROFILES TRIES IMAGE WORK.
func importWaiting(ctx context.Context, args []string) error {
	i := Importer{Source: Source{Version: "1", Path: args[2]}, Self: os.Args[0], Work: args[3], Memory: 4 << 30, Deadline: 10 * time.Minute}
	s := Spool{Profiles: args[0], Tries: args[1], Version: "1", Import: i.Import}
	if err := errors.Join(i.Clean(), s.clean()); err != nil {
		return err
	}
	for {
		next, found := s.next(ctx)
		if !found {
			return nil
		}
		s.one(ctx, next)
	}
}
