package session

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// recordingFolder matches the name of a recording's folder.
var recordingFolder = regexp.MustCompile(`^s[0-9]{1,10}-[0-9a-f]{16}$`)

// ParseAnswers parses a file of answers that a container may have written: a line for each answer, the last one about the newest command,
//
//	id=<UUID> outcome=<Outcome> begun=<ns> ended=<ns> report=<folder> message=<rest of the line>
//
// where begun, ended, report and message may be missing. It ignores lines that no prism-run writes. Times after now are dropped, Report is
// the name of the recording's folder, and Message is not escaped.
func ParseAnswers(raw []byte, now time.Time) (all []Answer) {
	for line := range strings.Lines(string(raw[:min(len(raw), MaxAnswers)])) {
		if a, ok := parseAnswer(line, now); ok {
			all = append(all, a)
		}
	}
	return all[max(0, len(all)-KeptAnswers):]
}

func parseAnswer(line string, now time.Time) (a Answer, ok bool) {
	text, complete := strings.CutSuffix(line, "\n")
	if !complete {
		return a, false
	}
	text, a.Message, _ = strings.Cut(text, " message=")
	for pair := range strings.SplitSeq(text, " ") {
		key, value, _ := strings.Cut(pair, "=")
		switch key {
		case "id":
			a.ID = value
		case "outcome":
			a.Outcome = Outcome(value)
		case "begun":
			a.Begun = past(value, now)
		case "ended":
			a.Ended = past(value, now)
		case "report":
			if recordingFolder.MatchString(value) {
				a.Report = value
			}
		}
	}
	return a, ValidID.MatchString(a.ID) && slices.Contains(Outcomes, a.Outcome)
}

// past returns a time that is not in the future.
func past(value string, now time.Time) *time.Time {
	at := instant(value)
	if at.IsZero() || at.After(now) {
		return nil
	}
	return &at
}
