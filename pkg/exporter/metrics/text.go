package metrics

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of texts that tenants choose, in bytes.
const (
	maxText    = 253
	maxCommand = 15
	maxLabel   = 64
	maxLabels  = 8
)

func itoa(i int) string { return strconv.Itoa(i) }

// bounded cuts a text of any bytes to at most max bytes and replaces its invalid UTF-8.
func bounded(s string, limit int) string {
	if len(s) > limit {
		cut := limit
		for cut > 0 && cut > limit-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
			cut--
		}
		if !utf8.RuneStart(s[cut]) {
			cut = limit
		}
		s = s[:cut]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// appendEscaped writes a label value in the syntax of both text formats.
func appendEscaped(to []byte, s string) []byte {
	for i := range len(s) {
		switch s[i] {
		case '\\':
			to = append(to, '\\', '\\')
		case '"':
			to = append(to, '\\', '"')
		case '\n':
			to = append(to, '\\', 'n')
		default:
			to = append(to, s[i])
		}
	}
	return to
}

// appendHelp writes a help text; OpenMetrics also escapes quotes.
func appendHelp(to []byte, s string, openMetrics bool) []byte {
	for i := range len(s) {
		switch {
		case s[i] == '\\':
			to = append(to, '\\', '\\')
		case s[i] == '\n':
			to = append(to, '\\', 'n')
		case s[i] == '"' && openMetrics:
			to = append(to, '\\', '"')
		default:
			to = append(to, s[i])
		}
	}
	return to
}

// appendLabel writes one label of a series; the value is bounded.
func appendLabel(to []byte, name, value string) []byte {
	if len(to) > 0 {
		to = append(to, ',')
	}
	to = append(append(to, name...), '=', '"')
	return append(appendEscaped(to, bounded(value, maxText)), '"')
}

// labels writes several labels from alternating names and values.
func labels(pairs ...string) []byte {
	to := make([]byte, 0, 64*len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		to = appendLabel(to, pairs[i], pairs[i+1])
	}
	return to
}

// appendValue writes a number, an integer without exponent.
func appendValue(to []byte, v float64) []byte {
	if i := int64(v); float64(i) == v && i > -1e15 && i < 1e15 {
		return strconv.AppendInt(to, i, 10)
	}
	return strconv.AppendFloat(to, v, 'g', -1, 64)
}

// labelName turns a claim's label name into a label name of Prometheus.
func labelName(s string) string { return promName(bounded(s, maxLabel)) }

// promName replaces characters that Prometheus does not allow in label names.
func promName(s string) string {
	name := []byte(s)
	for i, c := range name {
		if c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			name[i] = '_'
		}
	}
	return string(name)
}
