package profile

import (
	"io"
	"strings"

	"github.com/prism-gpu/prism/pkg/cli/reports"
)

// escaped writes text that is safe for a terminal, line by line.
type escaped struct{ out io.Writer }

func (e escaped) Write(b []byte) (int, error) {
	var safe strings.Builder
	for line := range strings.Lines(string(b)) {
		text, end := strings.CutSuffix(line, "\n")
		safe.WriteString(reports.Escape(text))
		if end {
			safe.WriteString("\n")
		}
	}
	if _, err := io.WriteString(e.out, safe.String()); err != nil {
		return 0, err
	}
	return len(b), nil
}
