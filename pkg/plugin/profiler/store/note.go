package store

import (
	"strings"
	"time"

	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

const (
	// maxSize limits the size of a report that stays in its container, in bytes.
	maxSize = 1 << 50
	// maxFile limits the file name of a report for downloads, maxPath its path in its container.
	maxFile, maxPath = 200, 1024
)

// note contains a supervisor's messages about its session. Of repeated keys the last applies.
type note map[string]string

// noteKeys are the supported keys.
var noteKeys = map[string]bool{
	"pod": true, "namespace": true, "container": true, "process": true, "pid": true, "started": true, "file": true, "state": true,
	"reason": true, "exited": true, "path": true, "size": true, "message": true,
}

// isNoteKey reports whether a key is supported.
func isNoteKey(key string) bool { return noteKeys[key] || strings.HasPrefix(key, sizeKey(0)+".") }

// parseNote parses complete lines; it ignores incomplete lines and unknown keys.
func parseNote(raw []byte) note { return untrusted.ParseNote(raw, isNoteKey) }

// message returns the supervisor's reason why there is no report.
func (n note) message() string { return untrusted.Escape(n["message"], untrusted.MaxField) }

// over reports whether the supervisor wrote its last state.
func (n note) over() bool { return n["state"] == "Finished" || n["state"] == "Failed" || n.cancelled() }

// cancelled reports whether the recording was cancelled by hand: there is no report, and never will be.
func (n note) cancelled() bool { return n["state"] == "Cancelled" }

// fill copies values of the note into a report, escaped and bounded. The container cannot set the claim's own fields, and a report stays
// only in the folder that the claim requests.
func (n note) fill(r *report.Report, of *Claim, now time.Time) {
	process := untrusted.ProcessOf(n, now)
	r.Pod, r.Container, r.Process, r.PID = process.Pod, process.Container, process.Name, process.PID
	if !process.Started.IsZero() {
		r.Started = process.Started
	}
	if at, ok := untrusted.Instant(n["exited"], now); ok {
		r.Ended = &at
	}
	r.File = fileName(n["file"], r.ID)
	if at := untrusted.Escape(n["path"], maxPath); of.stays(at) {
		r.Path = at
	}
	if reason := n["reason"]; isReason(reason) {
		r.Reason = reason
	}
}

// isReason reports whether a text is a CamelCase word, like reasons of conditions.
func isReason(text string) bool {
	if text == "" || len(text) > 64 || text[0] < 'A' || text[0] > 'Z' {
		return false
	}
	for _, c := range []byte(text) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// fileName returns a plain name, based on the container's name of its report.
func fileName(wanted, id string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-', r == '+', r == '@':
			return r
		}
		return '_'
	}, wanted[:min(len(wanted), maxFile)])
	name = strings.TrimLeft(name, ".-")
	name = strings.TrimSuffix(strings.TrimSuffix(name, readySuffix), rawSuffix)
	if name == "" {
		return id
	}
	return name
}
