package gpus

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/prism-gpu/prism/pkg/cli/explain"
	"github.com/prism-gpu/prism/pkg/cli/reports"
	"github.com/prism-gpu/prism/pkg/cli/screen"
)

// explained is an explanation, which other pods may share.
type explained struct {
	*explain.Explanation
	// Equal are the names of other pods with the same claims.
	Equal []string `json:"equal,omitempty"`
}

// namesShown is the number of names in a list of pods or nodes.
const namesShown = 3

// text lays out an explanation. wide adds the names of the nodes; now is the time of the API server.
func (e *explained) text(s screen.Screen, wide bool, now time.Time) string {
	var out lines
	out.add(screen.Cuts(safe(e.Sentence), "", "  ", s.Width)...)
	for _, r := range e.Requests {
		out.add(screen.Cuts(safe("request "+r), "  ", "    ", s.Width)...)
	}
	if len(e.Equal) > 0 {
		text := fmt.Sprintf("and %d equal %s: %s", len(e.Equal), plural(len(e.Equal), "pod"), few(e.Equal))
		out.add(screen.Cuts(safe(text), "  ", "    ", s.Width)...)
	}
	out.text.WriteString(e.groups(s, wide))
	e.nearest(&out, s, now)
	e.changes(&out, s)
	for _, note := range e.Notes {
		out.add(screen.Cuts(safe(note), "", "  ", s.Width)...)
	}
	return out.String()
}

// groups is the table of causes.
func (e *explained) groups(s screen.Screen, wide bool) string {
	if len(e.Groups) == 0 {
		return ""
	}
	columns := []screen.Column{{Title: "NODES", Kind: screen.Number}, {Title: "CAUSE", Kind: screen.Word}, {Title: "DETAIL", Kind: screen.Sentence}}
	var rows [][]string
	for _, g := range e.Groups {
		detail := safe(g.Detail)
		if wide {
			detail = strings.TrimSpace(detail + " (" + safe(strings.Join(g.Nodes, ", ")) + ")")
		}
		rows = append(rows, []string{strconv.Itoa(len(g.Nodes)), string(g.Cause), detail})
	}
	return s.Table(columns, rows, func(row, column int, text string) string {
		if columns[column].Title != "CAUSE" {
			return text
		}
		return s.Paint(causeColor(e.Groups[row].Cause), text)
	})
}

// causeColor is green for a node that fits, yellow for causes that end by themselves or by other pods, and red for others.
func causeColor(cause explain.Cause) screen.Color {
	switch cause {
	case explain.Fits:
		return screen.Green
	case explain.InUse, explain.NodeResources, explain.PoolIncomplete, explain.SearchTooLong:
		return screen.Yellow
	default:
		return screen.Red
	}
}

// nearest adds the device with the fewest claims in the way.
func (e *explained) nearest(out *lines, s screen.Screen, now time.Time) {
	n := e.Nearest
	if n == nil {
		return
	}
	text := "Nearest: "
	if n.Alike > 1 {
		text += fmt.Sprintf("any 1 of %d, such as ", n.Alike)
	}
	text += "node " + n.Node
	if n.GPU != "" {
		text += ", GPU " + short(n.GPU)
	}
	if n.Size > 0 {
		text += ", " + slicesOf(n.Start, n.Size)
	}
	out.add(blocked(n, safe(text), s.Width)...)
	hidden := false
	for i := range n.Holders {
		if n.Holders[i].Hidden {
			hidden = true
			continue
		}
		out.add(holderLines(&n.Holders[i], s.Width, now)...)
	}
	if hidden { // how many is unknown
		out.add(screen.Wrap("claims that you cannot list", "  ", "    ", s.Width)...)
	}
}

// blocked adds "blocked by" to a text that leads to holders. The two words stay in one line.
func blocked(n *explain.Nearest, text string, width int) []string {
	const rest, clause = "    ", "blocked by"
	if len(n.Holders) == 0 {
		return screen.Cuts(text, "", rest, width)
	}
	wrapped := screen.Cuts(text+",", "", rest, width)
	last := &wrapped[len(wrapped)-1]
	if whole := *last + " " + clause; len([]rune(whole)) <= width {
		*last = whole
		return wrapped
	}
	return append(wrapped, rest+clause)
}

// holderLines describes a claim in the way: "web/rank-x2  1g.10gb at 2, claim rank-x2-gpu, 3d".
func holderLines(h *explain.Holder, width int, now time.Time) []string {
	name := "claim " + h.Namespace + "/" + h.Claim
	facts := []string{h.Devices}
	if len(h.Pods) > 0 {
		name = few(qualified(h.Namespace, h.Pods))
		facts = append(facts, "claim "+h.Claim)
	}
	if h.Owner != "" {
		facts = append(facts, h.Owner)
	}
	if h.Priority != 0 {
		facts = append(facts, fmt.Sprintf("priority %d", h.Priority))
	}
	if h.Created > 0 {
		facts = append(facts, duration.HumanDuration(now.Sub(time.Unix(h.Created, 0))))
	}
	if h.Terminating {
		facts = append(facts, "terminating")
	}
	facts = slices.DeleteFunc(facts, func(fact string) bool { return fact == "" })
	const indent = "  "
	wrapped := screen.Cuts(safe(name), indent, "    ", width)
	if len(facts) == 0 {
		return wrapped
	}
	text := safe(strings.Join(facts, ", "))
	if whole := wrapped[0] + "  " + text; len(wrapped) == 1 && len([]rune(whole)) <= width {
		return []string{whole}
	}
	return append(wrapped, screen.Cuts(text, "    ", "    ", width)...)
}

// changes adds the changes that make it run, with numbers. Commands in them are not shortened.
func (e *explained) changes(out *lines, s screen.Screen) {
	const label = "To run it: "
	first, rest := label, strings.Repeat(" ", len(label))
	if s.Width < 2*len(label)+namesShown*10 {
		out.when(len(e.Changes) > 0, strings.TrimSpace(label))
		first, rest = "  ", "  "
	}
	for i, change := range e.Changes {
		number := strconv.Itoa(i+1) + ". "
		out.add(screen.Wrap(safe(change.Text), first+number, rest+strings.Repeat(" ", len(number)), s.Width)...)
		first = rest
	}
}

// lines is text under construction.
type lines struct{ text strings.Builder }

func (l *lines) String() string { return l.text.String() }

func (l *lines) add(all ...string) {
	for _, line := range all {
		l.text.WriteString(line + "\n")
	}
}

// when adds a line if something follows it.
func (l *lines) when(follows bool, line string) {
	if follows {
		l.add(line)
	}
}

// safe makes text of tenants safe for a terminal.
func safe(text string) string { return reports.Escape(text) }

// short is the name of a GPU without "gpu-".
func short(gpu string) string { return strings.TrimPrefix(gpu, "gpu-") }

// similar is the end of a sentence about an unknown name: the names that resemble it, or "" if there are none.
func similar(name string, names []string) string {
	if near := explain.Near(name, names); len(near) > 0 {
		return "; similar: " + strings.Join(near, ", ")
	}
	return ""
}

// slicesOf names memory slices: "memory slices 0-3", or "memory slice 2" for one.
func slicesOf(start, size int) string {
	if size == 1 {
		return fmt.Sprintf("memory slice %d", start)
	}
	return fmt.Sprintf("memory slices %d-%d", start, start+size-1)
}

// qualified puts the namespace before names.
func qualified(namespace string, names []string) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = namespace + "/" + name
	}
	return all
}

// few lists names, of many only the first.
func few(names []string) string {
	if len(names) <= namesShown+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:namesShown], ", "), len(names)-namesShown)
}

// plural adds an s unless the number is 1.
func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
