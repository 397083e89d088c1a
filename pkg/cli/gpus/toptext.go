package gpus

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/prism-gpu/prism/pkg/cli/screen"
	"github.com/prism-gpu/prism/pkg/cli/usage"
)

// topRow is a node, GPU, pod or namespace. Numbers of things that it does not count are 0.
type topRow struct {
	Node      string `json:"node,omitempty"`
	GPU       string `json:"gpu,omitempty"`
	Index     *int64 `json:"index,omitempty"`
	UUID      string `json:"uuid,omitempty"`
	Product   string `json:"product,omitempty"`
	Up        *bool  `json:"up,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	GPUs      int    `json:"gpus,omitempty"`
	Pods      int    `json:"pods,omitempty"`
	Devices   int    `json:"devices,omitempty"`
	usage.Load
	// measured is the number of GPUs with a utilization.
	measured int
	// shared is set if pods outside of the row may use the memory of a device.
	shared bool
}

// rows returns what the argument asks for, sorted by name.
func (t *top) rows(u *usage.Usage) (rows []topRow) {
	switch t.of {
	case topGPUs:
		return t.gpus(u)
	case topNodes:
		return t.nodes(u)
	case topPods:
		return t.pods(u)
	}
	byNamespace := map[string]*topRow{}
	t.all = true
	for _, pod := range t.pods(u) {
		row := byNamespace[pod.Namespace]
		if row == nil {
			row = &topRow{Namespace: pod.Namespace}
			byNamespace[pod.Namespace] = row
		}
		row.Pods++
		row.Devices += pod.Devices
		row.Add(pod.Load)
		row.shared = row.shared || pod.MemoryTotal == nil
	}
	for _, name := range slices.Sorted(maps.Keys(byNamespace)) {
		row := byNamespace[name]
		if row.shared {
			row.MemoryTotal = nil
		}
		rows = append(rows, *row)
	}
	return rows
}

// gpus are the GPUs of the ResourceSlices, also those without metrics.
func (t *top) gpus(u *usage.Usage) (rows []topRow) {
	for uuid, place := range t.places {
		row := topRow{Node: place.node, GPU: place.name, Index: place.index, UUID: uuid, Product: place.product}
		if g := u.GPUs[uuid]; g != nil {
			row.Up, row.Load = g.Up, g.Load
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b topRow) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), compareIndexes(a.Index, b.Index), cmp.Compare(a.GPU, b.GPU))
	})
	return rows
}

// compareIndexes puts unknown indexes last.
func compareIndexes(a, b *int64) int {
	const unknown = 1 << 62
	index := func(i *int64) int64 {
		if i == nil {
			return unknown
		}
		return *i
	}
	return cmp.Compare(index(a), index(b))
}

// nodes sums up the GPUs of each node; utilization is their mean.
func (t *top) nodes(u *usage.Usage) (rows []topRow) {
	for _, g := range t.gpus(u) {
		if len(rows) == 0 || rows[len(rows)-1].Node != g.Node {
			rows = append(rows, topRow{Node: g.Node})
		}
		row := &rows[len(rows)-1]
		row.GPUs++
		row.Add(g.Load)
		if g.Utilization != nil {
			row.measured++
		}
	}
	for i := range rows {
		if rows[i].Utilization != nil {
			rows[i].Utilization = new(*rows[i].Utilization / float64(rows[i].measured))
		}
	}
	return rows
}

// pods are the pods of the namespace, or of all, that use GPUs of the nodes.
func (t *top) pods(u *usage.Usage) (rows []topRow) {
	for _, p := range u.Pods {
		if p.Pod == "" || !t.all && p.Namespace != t.client.Namespace {
			continue
		}
		node := ""
		for _, uuid := range p.GPUs {
			node = cmp.Or(node, t.places[uuid].node)
		}
		if node == "" {
			continue // of another driver, or on a node that --node-selector excludes
		}
		rows = append(rows, topRow{Namespace: p.Namespace, Pod: p.Pod, Node: node, Devices: max(p.Devices, len(p.GPUs)), Load: p.Load})
	}
	slices.SortFunc(rows, func(a, b topRow) int { return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod)) })
	return rows
}

// order sorts rows by the flag --sort, the highest first. Unknown values are last.
func (t *top) order(rows []topRow) {
	value := map[string]func(*topRow) *float64{
		"utilization": func(r *topRow) *float64 { return r.Utilization },
		"memory":      func(r *topRow) *float64 { return r.MemoryUsed },
		"power":       func(r *topRow) *float64 { return r.Power },
	}[t.sort]
	if value == nil {
		return
	}
	known := func(r *topRow) float64 {
		if v := value(r); v != nil {
			return *v
		}
		return -1
	}
	slices.SortStableFunc(rows, func(a, b topRow) int { return cmp.Compare(known(&b), known(&a)) })
}

// topColumn is a column of the table.
type topColumn struct {
	screen.Column
	text func(*topRow) string
}

// text draws a table.
func (t *top) text(rows []topRow) string {
	if len(rows) == 0 {
		return "No pods with GPUs found.\n"
	}
	columns := t.columns()
	heads := make([]screen.Column, len(columns))
	for i, c := range columns {
		heads[i] = c.Column
	}
	cells := make([][]string, len(rows))
	for i := range rows {
		for _, c := range columns {
			cells[i] = append(cells[i], cmp.Or(safe(c.text(&rows[i])), "-"))
		}
	}
	s := t.screen()
	return s.Table(heads, cells, func(row, column int, text string) string {
		if columns[column].Title == "UTIL" {
			return s.Paint(utilizationColor(rows[row].Utilization), text)
		}
		return text
	})
}

// columns are the columns by argument and format.
func (t *top) columns() []topColumn {
	name := func(title string, text func(*topRow) string) topColumn {
		return topColumn{screen.Column{Title: title, Kind: screen.Name}, text}
	}
	number := func(title string, text func(*topRow) string) topColumn {
		return topColumn{screen.Column{Title: title, Kind: screen.Number}, text}
	}
	node := name("NODE", func(r *topRow) string { return r.Node })
	devices := number("DEVICES", func(r *topRow) string { return strconv.Itoa(r.Devices) })
	load := []topColumn{
		number("UTIL", func(r *topRow) string { return utilization(r) }),
		number("MEMORY", func(r *topRow) string { return memory(&r.Load) }),
	}
	power := number("POWER", func(r *topRow) string { return watts(r.Power) })
	namespace := name("NAMESPACE", func(r *topRow) string { return r.Namespace })
	switch t.of {
	case topNodes:
		return slices.Concat([]topColumn{node, number("GPUS", func(r *topRow) string { return strconv.Itoa(r.GPUs) })}, load, []topColumn{power})
	case topGPUs:
		columns := slices.Concat([]topColumn{
			node, number("INDEX", func(r *topRow) string { return index(r.Index) }), name("GPU", func(r *topRow) string { return short(r.GPU) }),
		}, load, []topColumn{power})
		if t.wide() {
			columns = append(columns, name("PRODUCT", func(r *topRow) string { return r.Product }), name("UUID", func(r *topRow) string { return r.UUID }))
		}
		return columns
	case topPods:
		columns := slices.Concat([]topColumn{namespace, name("POD", func(r *topRow) string { return r.Pod }), devices}, load)
		if t.wide() {
			columns = append(columns, node)
		}
		return columns
	}
	return slices.Concat([]topColumn{namespace, number("PODS", func(r *topRow) string { return strconv.Itoa(r.Pods) }), devices}, load)
}

// utilizationColor is green for busy devices, and yellow for idle ones, which others could use.
func utilizationColor(utilization *float64) screen.Color {
	switch {
	case utilization == nil:
		return screen.Faint
	case *utilization >= .5:
		return screen.Green
	case *utilization < .05:
		return screen.Yellow
	}
	return screen.Plain
}

func index(i *int64) string {
	if i == nil {
		return ""
	}
	return strconv.FormatInt(*i, 10)
}

// utilization is in percent; a GPU that does not respond is lost.
func utilization(r *topRow) string {
	switch {
	case r.Up != nil && !*r.Up:
		return "lost"
	case r.Utilization == nil:
		return ""
	}
	return fmt.Sprintf("%.0f%%", *r.Utilization*100)
}

// memory is the memory in use and in all, in GiB.
func memory(l *usage.Load) string {
	const gibi = 1 << 30
	switch {
	case l.MemoryUsed == nil && l.MemoryTotal == nil:
		return ""
	case l.MemoryUsed == nil:
		return fmt.Sprintf("-/%.1fGi", *l.MemoryTotal/gibi)
	case l.MemoryTotal == nil:
		return fmt.Sprintf("%.1fGi", *l.MemoryUsed/gibi)
	}
	return fmt.Sprintf("%.1f/%.1fGi", *l.MemoryUsed/gibi, *l.MemoryTotal/gibi)
}

func watts(power *float64) string {
	if power == nil {
		return ""
	}
	return fmt.Sprintf("%.0fW", *power)
}
