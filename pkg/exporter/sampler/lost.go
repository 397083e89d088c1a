package sampler

import (
	"errors"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// The waits between sessions that are opened for lost GPUs: each session costs all GPUs one sample, and most lost GPUs stay lost.
const (
	firstLost = time.Minute
	mostLost  = 16 * time.Minute
)

// lost stores an answer of the GPU and reports whether the session must be reopened because the GPU has been lost for long enough: a
// session does not find a GPU again after its reset.
func (w *worker) lost(err error) bool {
	if !errors.Is(err, gpu.ErrLost) {
		w.lostAt = time.Time{}
		return false
	}
	if w.lostAt.IsZero() {
		w.lostAt = time.Now()
	}
	return time.Since(w.lostAt) >= missed*w.interval && w.crew.s.reopens(w.id)
}

// reopens reports whether to reopen the session for a lost GPU now.
func (s *Sampler) reopens(id gpu.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !s.lostGPUs.Due(now) {
		return false
	}
	s.lostGPUs.Defer(now)
	s.opts.Log.Info("GPU is lost, reopening the session to find it after a reset", "gpu", id)
	return true
}
