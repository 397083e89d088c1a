package allocation

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/maintenance"
)

// gpuRelease follows the file in which the plugin says until when it has released the GPUs for a reset.
type gpuRelease struct {
	file string

	mu sync.Mutex
	// until is the time that the functions of calls know; zero: not released.
	until time.Time
	calls []func(until time.Time)
	// said is the last error that was logged.
	said string
}

func newGPURelease(dir string) *gpuRelease {
	return &gpuRelease{file: filepath.Join(dir, maintenance.ReleasedFile)}
}

// OnReleased registers a function that is called with the time until which the plugin has released the GPUs for a reset, zero if it has not:
// at once, and after each change. It must be called before Run.
func (t *Tracker) OnReleased(f func(until time.Time)) {
	t.released.read()
	t.released.mu.Lock()
	defer t.released.mu.Unlock()
	t.released.calls = append(t.released.calls, f)
	f(t.released.until)
}

// read reads the file, and passes on a change. A file that cannot be read releases nothing: the values of all GPUs would be missing.
func (r *gpuRelease) read() {
	r.mu.Lock()
	defer r.mu.Unlock()
	until, err := r.load()
	if err == nil {
		r.said = ""
	} else if r.said != err.Error() {
		r.said = err.Error()
		klog.Background().Info("Failed to read whether GPUs are released, assuming that they are not", "err", err)
	}
	if until.Equal(r.until) {
		return
	}
	r.until = until
	for _, call := range r.calls {
		call(until)
	}
}

func (r *gpuRelease) load() (until time.Time, err error) {
	data, err := os.ReadFile(r.file)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	content, err := maintenance.DecodeReleased(data)
	if err != nil || !content.At(time.Now()) {
		return time.Time{}, err
	}
	return content.Until, nil
}
