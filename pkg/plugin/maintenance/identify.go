package maintenance

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/prism-gpu/prism/pkg/gpu"
)

var (
	uuidPattern = regexp.MustCompile(`(?i)gpu-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	// busPattern is a PCI address. The function may be missing, as in messages of the kernel module.
	busPattern = regexp.MustCompile(`(?i)(?:[0-9a-f]{8}|[0-9a-f]{4}):[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?`)
)

// mostIdentifiers bounds the GPUs that one text names.
const mostIdentifiers = 256

// identifiers lists the UUIDs and PCI addresses of GPUs in a text, in the form of identifiersOf, each once.
func identifiers(text string) (found []string) {
	seen := map[string]bool{}
	add := func(pattern *regexp.Regexp, ends func(text string, from, to int) bool, normal func(string) string) {
		for _, at := range pattern.FindAllStringIndex(text, mostIdentifiers) {
			if !ends(text, at[0], at[1]) {
				continue
			}
			if id := normal(text[at[0]:at[1]]); !seen[id] {
				seen[id] = true
				found = append(found, id)
			}
		}
	}
	add(uuidPattern, wholeUUID, strings.ToLower)
	add(busPattern, wholeBusID, normalBusID)
	return found
}

// identifiersOf returns the identifiers by which texts name a GPU.
func identifiersOf(g *gpu.GPU) []string {
	return []string{strings.ToLower(string(g.UUID)), normalBusID(g.PCI.BusID)}
}

// wholeUUID reports whether a part of a text is not part of a longer identifier.
func wholeUUID(text string, from, to int) bool {
	return (from == 0 || !word(text[from-1]) && text[from-1] != '-') && (to == len(text) || !word(text[to]) && text[to] != '-')
}

// wholeBusID reports the same about a PCI address. A word and a colon may precede it, such as "PCI:".
func wholeBusID(text string, from, to int) bool {
	before := func(n int) byte {
		if from < n {
			return ' '
		}
		return text[from-n]
	}
	after := func(n int) byte {
		if to+n >= len(text) {
			return ' '
		}
		return text[to+n]
	}
	switch {
	case word(before(1)), word(after(0)):
		return false
	case before(1) == ':' && digit(before(2)), before(1) == '.' && word(before(2)):
		return false
	default:
		return after(0) != ':' && after(0) != '.' || !word(after(1))
	}
}

func word(c byte) bool {
	return digit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// normalBusID returns a PCI address with a domain of 8 digits and a function, in lower case.
func normalBusID(id string) string {
	domain, rest, _ := strings.Cut(strings.ToLower(id), ":")
	if n, err := strconv.ParseUint(domain, 16, 32); err == nil {
		const digits = 8
		domain = strconv.FormatUint(n, 16)
		domain = strings.Repeat("0", digits-len(domain)) + domain
	}
	if !strings.Contains(rest, ".") {
		rest += ".0"
	}
	return domain + ":" + rest
}
