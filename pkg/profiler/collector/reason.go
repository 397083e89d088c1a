package collector

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/prism-gpu/prism/pkg/profiler/counters"
)

// maxMessage limits the message of a state, in bytes.
const maxMessage = 512

// texts are texts in the output of the profiler, in lower case, by their reason.
var texts = []struct {
	text   string
	reason counters.Reason
}{
	{"err_nvgpuctrperm", counters.InsufficientPrivilege},
	{"insufficient privilege", counters.InsufficientPrivilege},
	{"does not have permission to access nvidia", counters.InsufficientPrivilege},
	{"already under profiling", counters.PerfmonBusy},
	{"already in use", counters.PerfmonBusy},
	{"gpus not found", counters.Unsupported},
	{"unsupported architecture", counters.Unsupported},
	{"insufficient driver version", counters.Unsupported},
	{"confidential compute", counters.Unsupported},
	{"protected memory mode", counters.Unsupported},
	{"none of the installed gpus are supported", counters.Unsupported},
	{"single mig enabled gpu is not supported", counters.Unsupported},
	{"metric set is not supported", counters.Unsupported},
	{"not supported by available metric sets", counters.Unsupported},
}

// sessionInUse matches a text about the name of a session, which is not about GPUs.
var sessionInUse = regexp.MustCompile(`session [^.\n]*already in use`)

// explain returns the reason in a text of the profiler, with the line that contains it; otherwise otherwise, with the end of the text.
func explain(text string, otherwise counters.Reason) (counters.Reason, string) {
	for _, t := range texts {
		for line := range strings.Lines(text) {
			if strings.Contains(sessionInUse.ReplaceAllString(strings.ToLower(line), ""), t.text) {
				return t.reason, sentence(line)
			}
		}
	}
	return otherwise, sentence(text)
}

// sentence returns the end of a text as one printable line of limited size.
func sentence(text string) string {
	text = text[max(0, len(text)-maxOutput):]
	text = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == unicode.ReplacementChar || !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, text)), " ")
	return strings.ToValidUTF8(text[max(0, len(text)-maxMessage):], "")
}
