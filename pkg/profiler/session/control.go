package session

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
)

// ControlFolder is the folder of commands in a claim's plan: a file for each session that has an open command, named like the session's
// folder.
const ControlFolder = "control"

// AnswersFile is prism-run's file of answers in a session's folder.
const AnswersFile = "answers"

// MaxControl is the maximum size of a command's file, MaxAnswers of a file of answers, in bytes; KeptAnswers is the number of answers in it.
const (
	MaxControl  = 512
	MaxAnswers  = 4 << 10
	KeptAnswers = 8
)

// Control is a command for one session, as prism-run reads it.
type Control struct {
	ID   string
	Verb Verb
	// At is when the profiler is started or stopped; the zero time: at once. Until is when the recording ends; the zero time: with a Stop.
	At, Until time.Time
	// SamplingFrequencyHz and Backtrace replace the claim's settings; 0 and "": they do not.
	SamplingFrequencyHz int32
	Backtrace           string
}

// backtraces maps to the profiler's names.
var backtraces = map[string]string{"None": "none", "LBR": "lbr", "FramePointer": "fp", "DWARF": "dwarf"}

// Encode returns the file: "key=value" lines with numbers, and words of a list.
func (c Control) Encode() ([]byte, error) {
	if !ValidID.MatchString(c.ID) {
		return nil, fmt.Errorf("encoding a command: the id must be a UUID, got %q", c.ID)
	}
	switch c.Verb {
	case v1alpha1.SessionStart, v1alpha1.SessionStop, v1alpha1.SessionCancel:
	case v1alpha1.SessionArm, v1alpha1.SessionDisarm:
		return nil, fmt.Errorf("encoding a command: %s is not for a session", c.Verb)
	default:
		return nil, fmt.Errorf("encoding a command: unsupported verb %q", c.Verb)
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "version=1\nid=%s\nverb=%s\nat=%d\nuntil=%d\n", c.ID, c.Verb, nanoseconds(c.At), nanoseconds(c.Until))
	if c.SamplingFrequencyHz > 0 {
		fmt.Fprintf(&text, "samplingFrequencyHz=%d\n", c.SamplingFrequencyHz)
	}
	if c.Backtrace != "" {
		word, known := backtraces[c.Backtrace]
		if !known {
			return nil, fmt.Errorf("encoding a command: unsupported backtrace %q", c.Backtrace)
		}
		fmt.Fprintf(&text, "backtrace=%s\n", word)
	}
	return text.Bytes(), nil
}

// ParseControl parses what Encode returns: the plugin that wrote it may have been replaced.
func ParseControl(raw []byte) (c Control, ok bool) {
	if len(raw) > MaxControl {
		return c, false
	}
	for line := range strings.Lines(string(raw)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch key {
		case "id":
			c.ID = value
		case "verb":
			c.Verb = Verb(value)
		case "at":
			c.At = instant(value)
		case "until":
			c.Until = instant(value)
		case "samplingFrequencyHz":
			hz, _ := strconv.ParseInt(value, 10, 32)
			c.SamplingFrequencyHz = int32(hz)
		case "backtrace":
			for name, word := range backtraces {
				if word == value {
					c.Backtrace = name
				}
			}
		}
	}
	_, err := c.Encode()
	return c, err == nil
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func instant(value string) time.Time {
	ns, err := strconv.ParseInt(value, 10, 64)
	if err != nil || ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}
