package store

import (
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

const (
	// maxNote is the number of bytes that are read of a note.
	maxNote = 64 << 10
	// maxField limits a value of a note in the index, in bytes.
	maxField = 253
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
func parseNote(raw []byte) note {
	n := note{}
	text := string(raw[:min(len(raw), maxNote)])
	for {
		line, rest, complete := strings.Cut(text, "\n")
		if !complete {
			return n
		}
		if key, value, ok := strings.Cut(line, "="); ok && isNoteKey(key) {
			n[key] = value
		}
		text = rest
	}
}

// message returns the supervisor's reason why there is no report.
func (n note) message() string { return escape(n["message"], maxField) }

// over reports whether the supervisor wrote its last state.
func (n note) over() bool { return n["state"] == "Finished" || n["state"] == "Failed" }

// fill copies values of the note into a report, escaped and bounded. The container cannot set the claim's own fields, and a report stays
// only in the folder that the claim requests.
func (n note) fill(r *report.Report, of *Claim, now time.Time) {
	r.Pod, r.Container = escape(n["pod"], maxField), escape(n["container"], maxField)
	r.Process = escape(path.Base("/"+n["process"]), maxField)
	if r.Process == "/" {
		r.Process = ""
	}
	if pid, err := strconv.ParseUint(n["pid"], 10, 31); err == nil {
		r.PID = int(pid)
	}
	if at, ok := instant(n["started"], now); ok {
		r.Started = at
	}
	if at, ok := instant(n["exited"], now); ok {
		r.Ended = &at
	}
	r.File = fileName(n["file"], r.ID)
	if at := escape(n["path"], maxPath); of.stays(at) {
		r.Path = at
	}
	if reason := n["reason"]; isReason(reason) {
		r.Reason = reason
	}
}

// instant parses nanoseconds since 1970, no later than now.
func instant(value string, now time.Time) (time.Time, bool) {
	ns, err := strconv.ParseInt(value, 10, 64)
	at := time.Unix(0, ns).UTC()
	return at, err == nil && ns > 0 && !at.After(now.Add(time.Minute))
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

// escape replaces unprintable characters, and truncates. It reads no more of the text than fits into the result.
func escape(text string, limit int) string {
	text = text[:min(len(text), limit*utf8.UTFMax)]
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, text)
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
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
