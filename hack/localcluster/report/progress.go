// Package report prints the progress of a long command, one line per step, with its duration.
package report

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// tick is the interval of lines about a step that is still running.
const tick = 15 * time.Second

// Progress writes lines that begin with the seconds since its creation. It is safe for concurrent use.
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

// Step prints the begin of a step, repeats it while it lasts, and returns the function that ends it. The end prints the duration if it was
// noticeable.
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
