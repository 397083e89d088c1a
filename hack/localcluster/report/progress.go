// Package report prints what a long command is doing, one line a step, with the time it took.
package report

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// tick is how often a step that is still running says so.
const tick = 15 * time.Second

// Progress writes lines that begin with the seconds since it was made. It is safe for concurrent use.
type Progress struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

// New starts the clock. Lines go to out.
func New(out io.Writer) *Progress {
	return &Progress{out: out, start: time.Now()}
}

// Line prints one line.
func (p *Progress) Line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "[%4.0fs] %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// Step says that what begins, repeats it while it lasts, and returns the function that ends it. The end prints the time when it
// was long enough to be felt.
func (p *Progress) Step(format string, args ...any) (end func()) {
	what := fmt.Sprintf(format, args...)
	begin := time.Now()
	p.Line("%s", what)
	stop, ticker := make(chan struct{}), time.NewTicker(tick)
	go func() {
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				p.Line("%s: still running, %.0f s", what, time.Since(begin).Seconds())
			}
		}
	}()
	return func() {
		close(stop)
		if took := time.Since(begin); took > time.Second {
			p.Line("%s: done in %.1f s", what, took.Seconds())
		}
	}
}
