package maintenance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

const (
	// reasonLimit and valueLimit bound texts of annotations in taints, Events and errors, in bytes.
	reasonLimit = 256
	valueLimit  = 64
	// nameLimit is the length of the longest name of a GPU: the prefix and all digits of a UUID.
	nameLimit = len(gpuPrefix) + 32
	gpuPrefix = "gpu-"
	hexDigits = "0123456789abcdef"
)

// Command is a valid annotation.
type Command struct {
	Verb Verb
	// GPU is the name of a GPU's device, or All. The node may have no such GPU.
	GPU string
	// Reason is the text of Maintain, on one line and shortened; it may be empty.
	Reason string
	// Time is the time of Release and Heal.
	Time time.Time
	// Key and Value are the annotation's.
	Key, Value string
}

// Invalid is an annotation of a domain of maintenance that is no command.
type Invalid struct {
	Key, Value string
	// Why is one sentence about the annotation.
	Why string
}

// Domains lists the domains of the annotations for a driver.
func Domains(driverName string) []string {
	return []string{string(Maintain) + "." + driverName, string(Release) + "." + driverName, string(Heal) + "." + driverName}
}

// Parse returns the commands among the annotations of a Node, and the invalid ones, both in the order of their keys. It does not decide
// whether the node has the GPU, or whether a time is too late.
func Parse(annotations map[string]string, driverName string) ([]Command, []Invalid) {
	var commands []Command
	var invalid []Invalid
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		domain, name, _ := strings.Cut(key, "/")
		if !slices.Contains(Domains(driverName), domain) {
			continue
		}
		verb, _, _ := strings.Cut(domain, ".")
		c := Command{Verb: Verb(verb), GPU: name, Key: key, Value: annotations[key]}
		if why := c.parse(); why != "" {
			invalid = append(invalid, Invalid{Key: key, Value: c.Value, Why: "Annotation " + key + " of the node is ignored: " + why})
			continue
		}
		commands = append(commands, c)
	}
	return commands, invalid
}

// parse reads name and value, and returns why they are no command; empty if they are.
func (c *Command) parse() string {
	all := c.GPU == All
	switch {
	case all && c.Verb != Maintain:
		return fmt.Sprintf("%q is supported by %s only; name one GPU", All, Maintain)
	case !all && !isName(c.GPU):
		return fmt.Sprintf("a GPU is named as its device, such as %q", gpuPrefix+"5d3f61a2")
	}
	if c.Verb == Maintain {
		c.Reason = Line(c.Value, reasonLimit)
		return ""
	}
	at, err := time.Parse(time.RFC3339, c.Value)
	if err != nil {
		return fmt.Sprintf("%q is no time in RFC 3339, such as %q", Line(c.Value, valueLimit), "2026-01-02T15:04:05Z")
	}
	c.Time = at.Truncate(time.Second) // as in ReleasedFile
	return ""
}

// isName reports whether a text may be the name of a GPU's device.
func isName(name string) bool {
	digits, has := strings.CutPrefix(name, gpuPrefix)
	return has && len(digits) > 0 && len(name) <= nameLimit && strings.Trim(digits, hexDigits) == ""
}

// CheckRelease returns why sessions are not closed until a time; empty if they may be.
func CheckRelease(until, now time.Time) string {
	switch ahead := until.Sub(now); {
	case ahead <= 0:
		return "its time has passed"
	case ahead > ReleaseMax:
		return fmt.Sprintf("its time is more than %d minutes ahead", int(ReleaseMax.Minutes()))
	default:
		return ""
	}
}

// CheckHeal returns why a command with that time heals nothing; empty if it does. A time that is far ahead would end errors of the future:
// the command is followed again at each start.
func CheckHeal(before, now time.Time) string {
	if before.Sub(now) > ReleaseMax {
		return fmt.Sprintf("its time is more than %d minutes ahead", int(ReleaseMax.Minutes()))
	}
	return ""
}

// Line returns a text on one line without control characters, of at most limit bytes.
func Line(text string, limit int) string {
	shortened := len(text) > limit
	if shortened {
		text = text[:limit]
	}
	text = strings.ToValidUTF8(text, "")
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text))
	if shortened {
		text += "…"
	}
	return text
}
