package profile

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// progress shows the progress of a download on a terminal.
type progress struct {
	out   io.Writer
	file  *os.File // nil: not a terminal
	name  string
	first int64
	begin time.Time
	last  time.Time
	shown bool
}

// every is the interval of updates.
const every = 200 * time.Millisecond

func newProgress(out io.Writer) *progress {
	p := &progress{out: out}
	if isTerminal(out) {
		p.file, _ = out.(*os.File)
	}
	return p
}

func terminal(file *os.File) bool { return term.IsTerminal(int(file.Fd())) }

// show replaces the line. The name must be plain text.
func (p *progress) show(name string, done, total int64) {
	if p.file == nil {
		return
	}
	now := time.Now()
	if name != p.name || done < p.first {
		p.name, p.first, p.begin, p.last = name, done, now, time.Time{}
	}
	if now.Sub(p.last) < every {
		return
	}
	p.last = now
	text := fmt.Sprintf("%s  %s", name, size(done))
	if total > 0 {
		text = fmt.Sprintf("%3d%%  %s of %s  %s", done*100/total, size(done), size(total), name)
	}
	if seconds := now.Sub(p.begin).Seconds(); seconds > 1 {
		text = fmt.Sprintf("%s/s  %s", size(int64(float64(done-p.first)/seconds)), text)
	}
	if width, _, err := term.GetSize(int(p.file.Fd())); err == nil && width > 1 && len(text) >= width {
		text = text[:width-1]
	}
	_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s", text)
	p.shown = true
}

// clear removes the line.
func (p *progress) clear() {
	if p.shown {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
		p.shown = false
	}
	p.name = ""
}
