package untrusted

import (
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxNote is the number of bytes that are read of a note.
	MaxNote = 64 << 10
	// MaxField limits a value of a note outside of it, in bytes.
	MaxField = 253
)

// ParseNote parses complete lines "key=value" with a supported key. Of repeated keys the last applies.
func ParseNote(raw []byte, supported func(key string) bool) map[string]string {
	n := map[string]string{}
	text := string(raw[:min(len(raw), MaxNote)])
	for {
		line, rest, complete := strings.Cut(text, "\n")
		if !complete {
			return n
		}
		if key, value, ok := strings.Cut(line, "="); ok && supported(key) {
			n[key] = value
		}
		text = rest
	}
}

// ProcessKeys are the keys of a note about its process.
var ProcessKeys = []string{"pod", "container", "process", "pid", "started"}

// Process is what a note says about its process, escaped and bounded. Zero fields are missing.
type Process struct {
	Pod, Container, Name string
	PID                  int
	Started              time.Time
}

// ProcessOf returns the process of a note.
func ProcessOf(note map[string]string, now time.Time) Process {
	p := Process{
		Pod: Escape(note["pod"], MaxField), Container: Escape(note["container"], MaxField), Name: Escape(path.Base("/"+note["process"]), MaxField),
	}
	if p.Name == "/" {
		p.Name = ""
	}
	if pid, err := strconv.ParseUint(note["pid"], 10, 31); err == nil {
		p.PID = int(pid)
	}
	if at, ok := Instant(note["started"], now); ok {
		p.Started = at
	}
	return p
}

// Instant parses nanoseconds since 1970, no later than a minute after now.
func Instant(value string, now time.Time) (time.Time, bool) {
	ns, err := strconv.ParseInt(value, 10, 64)
	at := time.Unix(0, ns).UTC()
	return at, err == nil && ns > 0 && !at.After(now.Add(time.Minute))
}

// Escape replaces unprintable characters, and truncates. It reads no more of the text than fits into the result.
func Escape(text string, limit int) string {
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
