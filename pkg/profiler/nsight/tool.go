package nsight

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Tool is an installed version.
type Tool struct {
	// Version consists of numbers with dots, such as 2023.4.4.
	Version string
	// Switches, Launch and Start are the results of Switches for the help of `nsys profile`, `nsys launch` and `nsys start`. Launch and Start
	// are empty if an earlier version of the driver installed it.
	Switches, Launch, Start []string
}

// Choose returns the highest of the installed versions that equal the wanted version or begin with it: 2025.5 also selects 2025.5.1. If it
// is empty, it returns the highest of all.
func Choose(installed []Tool, wanted string) (Tool, error) {
	var found *Tool
	for i := range installed {
		t := &installed[i]
		fits := wanted == "" || t.Version == wanted || strings.HasPrefix(t.Version, wanted+".")
		if fits && (found == nil || compare(t.Version, found.Version) > 0) {
			found = t
		}
	}
	if found != nil {
		return *found, nil
	}
	if wanted == "" {
		return Tool{}, fmt.Errorf("no version of Nsight Systems is installed")
	}
	versions := make([]string, len(installed))
	for i, t := range installed {
		versions[i] = t.Version
	}
	slices.SortFunc(versions, compare)
	there := "none"
	if len(versions) > 0 {
		there = strings.Join(versions, ", ")
	}
	return Tool{}, fmt.Errorf("Nsight Systems %s is not installed; installed versions: %s", wanted, there) //nolint:staticcheck // a name
}

// compare orders versions by their numbers.
func compare(a, b string) int {
	numbers := func(version string) (all []int) {
		for part := range strings.SplitSeq(version, ".") {
			n, _ := strconv.Atoi(part)
			all = append(all, n)
		}
		return all
	}
	return cmp.Or(slices.Compare(numbers(a), numbers(b)), strings.Compare(a, b))
}

// The syntax of a help text: a switch at the beginning of its entry, some of which stand for several, and a value in quotes, possibly
// followed by text in brackets or after a colon.
var (
	switchEntry = regexp.MustCompile(`^\s*(?:-[A-Za-z], )?(--[a-z][a-z0-9-]*)(?:\[([a-z|]+)\])?`)
	quotedValue = regexp.MustCompile(`'([a-z0-9-]+)(?:\[?:[^']*)?'`)
)

// maxSwitches limits the result for a help text: the switches of a version and the values of two of them.
const maxSwitches = 1024

// The switches with a list of their values.
const (
	traceSwitch    = "--trace"
	rangeEndSwitch = "--capture-range-end"
)

// Switches returns the features in the help of a command of nsys: its switches as "--name", and the traceable APIs and the actions at the end
// of a range as "--name=value". They are sorted. Deprecated and experimental switches, whose entries begin with that word, are left out.
func Switches(help string) []string {
	var all []string
	entry, listed := "", false
	for line := range strings.Lines(help) {
		if found := switchEntry.FindStringSubmatch(line); found != nil {
			entry, listed = found[1], false
			for end := range strings.SplitSeq(found[2], "|") {
				all = append(all, entry+end)
			}
			continue
		}
		// Their values are one sentence.
		if entry != traceSwitch && entry != rangeEndSwitch || listed {
			continue
		}
		values, _, ended := strings.Cut(line, ".\n")
		for _, value := range quotedValue.FindAllStringSubmatch(values, -1) {
			all = append(all, entry+"="+value[1])
		}
		listed = ended
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), maxSwitches)]
}
