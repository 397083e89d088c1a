package gpus

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/screen"
)

// The types of devices in the attribute "type".
const (
	typeWhole, typeMIG, typeBySize, typeShared = "gpu", "mig", "mps", "timeslice"
)

const (
	// cells is the width of the bar of a GPU without memory slices.
	cells = 8
	mebi  = 1 << 20
)

// The cells of a bar besides the letters of MIG devices.
const (
	cellFree, cellTainted, cellWhole, cellBySize, cellShared, cellOther = '.', 'x', '#', 'm', 't', '+'
)

// item is something on the line of a GPU: "A 1g.10gb web/rank-x2".
type item struct {
	// head is not shortened; the names of the users are.
	head  string
	users []user
	color screen.Color
}

// user is a claim of a device: "20Gi ", "web/chat-1" and ""; or a taint. Only its name is shortened.
type user struct{ before, name, after string }

// gpuLine is the line of a GPU.
type gpuLine struct {
	index, id, bar, free string
	items                []item
}

// nodeText draws the GPUs of one node. wide adds the UUIDs.
func nodeText(s screen.Screen, driver string, gpus []*clusterview.GPU, wide bool) string {
	var out lines
	out.add(nodeHeader(gpus, s.Width)...)
	all := make([]gpuLine, len(gpus))
	var index, id, bar, free int
	for i, g := range gpus {
		l := line(g, driver, wide)
		all[i] = l
		index, id, bar, free = max(index, len(l.index)), max(id, len(l.id)), max(bar, len(l.bar)), max(free, len(l.free))
	}
	for i := range all {
		l := &all[i]
		start := fmt.Sprintf("%*s %-*s  ", index, l.index, id, l.id)
		rest := strings.Repeat(" ", bar-len(l.bar))
		if free > 0 {
			rest += fmt.Sprintf(" %-*s", free, l.free)
		}
		column := len(start) + len(l.bar) + len(rest) + 2
		const narrowest = 24
		indent := column
		if s.Width-column < narrowest {
			indent = 4
		}
		texts := layout(s, l.items, s.Width-indent)
		first := start + paintBar(s, l.bar) + rest
		if indent == column && len(texts) > 0 {
			first, texts = first+"  "+texts[0], texts[1:]
		}
		out.add(strings.TrimRight(first, " "))
		for _, text := range texts {
			out.add(strings.Repeat(" ", indent) + text)
		}
	}
	return out.String()
}

// nodeHeader is the line "gpu-a07  8 × NVIDIA H100 80GB HBM3  driver 580.95.5".
func nodeHeader(gpus []*clusterview.GPU, width int) []string {
	node := gpus[0].Node
	facts := []string{node.Name}
	facts = append(facts, counted(gpus, func(g *clusterview.GPU) string { return g.Product }, func(n int, product string) string {
		return fmt.Sprintf("%d × %s", n, product)
	})...)
	facts = append(facts, counted(gpus, func(g *clusterview.GPU) string { return g.DriverVersion }, func(_ int, version string) string {
		return "driver " + version
	})...)
	if node.Object != nil && node.Object.Spec.Unschedulable {
		facts = append(facts, "cordoned")
	}
	return screen.Items(facts, width, func(fact string, width int) string { return screen.Cut(safe(fact), width) })
}

// counted formats the values of GPUs with their number, in the order of the GPUs. Empty values are left out.
func counted(gpus []*clusterview.GPU, value func(*clusterview.GPU) string, format func(n int, value string) string) (texts []string) {
	var values []string
	number := map[string]int{}
	for _, g := range gpus {
		v := value(g)
		if number[v]++; v != "" && !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	for _, v := range values {
		texts = append(texts, format(number[v], v))
	}
	return texts
}

// line describes a GPU.
func line(g *clusterview.GPU, driver string, wide bool) gpuLine {
	l := gpuLine{index: "-", id: short(g.Name), bar: bar(g), free: "full"}
	if g.Index != nil {
		l.index = strconv.FormatInt(*g.Index, 10)
	}
	if wide {
		l.id = cmp.Or(g.UUID, l.id)
	}
	if g.Free > 0 {
		l.free = size(g.Free) + " free"
	}
	if slices.ContainsFunc(g.Parts, func(p clusterview.Part) bool { return p.Type == typeWhole || p.Type == typeShared }) || unusable(g) {
		l.free = ""
	}
	letter := 'A'
	for i := range g.Parts {
		p := &g.Parts[i]
		l.items = append(l.items, partItem(g, p, letter))
		if p.Type == typeMIG {
			letter++
		}
	}
	for _, t := range g.Taints {
		u := user{name: strings.TrimPrefix(t.Key, driver+"/")}
		if t.Value != "" {
			u.name += "=" + t.Value
		}
		if total := devicesOf(g); t.Devices < total {
			u.after = fmt.Sprintf("(%d/%d)", t.Devices, total)
		}
		u.name = safe(u.name)
		l.items = append(l.items, item{head: "taint", users: []user{u}, color: screen.Red})
	}
	return l
}

// partItem describes an allocated device.
func partItem(g *clusterview.GPU, p *clusterview.Part, letter rune) item {
	switch p.Type {
	case typeMIG:
		return item{head: string(letter) + " " + safe(p.Profile), users: usersOf(p, nil), color: letterColor(letter)}
	case typeWhole:
		return item{head: "whole", users: usersOf(p, nil), color: screen.Blue}
	case typeBySize:
		return item{head: "mps", users: usersOf(p, consumed), color: screen.Magenta}
	case typeShared:
		head := "time-sliced"
		if total := sharesOf(g, p); total > 0 {
			head += fmt.Sprintf(" %d/%d", len(p.Uses), total)
		}
		return item{head: head, users: usersOf(p, nil), color: screen.Yellow}
	}
	return item{head: safe(p.Type), users: usersOf(p, nil), color: screen.Cyan}
}

// usersOf names the pods of each share of a device, or the claim of a share without pods; with before, each follows a text about the share.
func usersOf(p *clusterview.Part, before func(*resourceapi.DeviceRequestAllocationResult) string) (all []user) {
	for _, use := range p.Uses {
		u := user{name: "claim " + use.Claim.Namespace + "/" + use.Claim.Name}
		if pods := podNames(use.Claim); len(pods) > 0 {
			u.name = few(qualified(use.Claim.Namespace, pods))
		}
		u.name = safe(u.name)
		if before != nil {
			if text := before(use.Result); text != "" {
				u.before = text + " "
			}
		}
		all = append(all, u)
	}
	return all
}

// podNames are the names of a claim's pods.
func podNames(c *clusterview.Claim) (names []string) {
	for _, pod := range c.Pods {
		names = append(names, pod.Name)
	}
	return names
}

// consumed is the memory of a share.
func consumed(r *resourceapi.DeviceRequestAllocationResult) string {
	if q, ok := r.ConsumedCapacity["memory"]; ok {
		return size(q.Value())
	}
	return ""
}

// piece is a part of an item that stays on one line: the head with the first user, or a further user.
type piece struct {
	head, rest string
	color      screen.Color
	further    bool
}

func (p piece) text() string {
	return strings.TrimSuffix(p.head+" "+p.rest, " ")
}

// pieces splits an item. A name is shortened if its piece is longer than a line.
func (i item) pieces(width int) (all []piece) {
	p := piece{head: i.head, color: i.color}
	for n, u := range i.users {
		if n < len(i.users)-1 {
			u.after += ","
		}
		taken := len([]rune(p.head + " " + u.before + u.after))
		p.rest = u.before + screen.Cut(u.name, max(width-taken, shortestUser)) + u.after
		all = append(all, p)
		p = piece{further: true}
	}
	if len(i.users) == 0 {
		p.head = screen.Cut(p.head, width)
		all = append(all, p)
	}
	return all
}

// shortestUser is the width below which names are not shortened.
const shortestUser = 8

// layout puts items into lines, with two spaces between two items.
func layout(s screen.Screen, items []item, width int) (lines []string) {
	line, used := "", 0
	for _, i := range items {
		for _, p := range i.pieces(width) {
			gap, text := "  ", p.text()
			if p.further {
				gap, text = " ", p.rest
			}
			painted := strings.TrimSuffix(s.Paint(p.color, p.head)+" "+p.rest, " ")
			if p.further {
				painted = p.rest
			}
			n := len([]rune(text))
			switch {
			case used == 0:
				line, used = painted, n
			case used+len(gap)+n <= width:
				line, used = line+gap+painted, used+len(gap)+n
			default:
				lines = append(lines, line)
				line, used = painted, n
			}
		}
	}
	if used > 0 {
		lines = append(lines, line)
	}
	return lines
}

// sharesOf is the number of shares that a device has, those in use among them; 0 if it has no limit.
func sharesOf(g *clusterview.GPU, p *clusterview.Part) int64 {
	if g.Node == nil {
		return 0
	}
	for _, pool := range g.Node.Pools {
		for _, list := range pool.Slices() {
			for i := range list.Spec.Devices {
				if d := &list.Spec.Devices[i]; d.Name == p.Device {
					shares := d.Capacity["shares"].Value
					return shares.Value()
				}
			}
		}
	}
	return 0
}

// devicesOf is the number of advertised devices of a GPU.
func devicesOf(g *clusterview.GPU) (n int) {
	for _, count := range g.Devices {
		n += count
	}
	return n
}

// size formats bytes in the largest unit that divides them; less than 1 MiB is dropped.
func size(bytes int64) string {
	return resource.NewQuantity(bytes/mebi*mebi, resource.BinarySI).String()
}

// unusable reports whether a taint of all devices refuses new claims.
func unusable(g *clusterview.GPU) bool {
	return slices.ContainsFunc(g.Taints, func(t clusterview.Taint) bool {
		refuses := t.Effect == string(corev1.TaintEffectNoSchedule) || t.Effect == string(corev1.TaintEffectNoExecute)
		return refuses && t.Devices >= devicesOf(g)
	})
}
