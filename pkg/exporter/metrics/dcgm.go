package metrics

import (
	"io"
	"slices"
	"strconv"
	"strings"
)

// DCGM writes the page of DCGM's names in the text format 0.0.4, nil for the fields of dcgm-exporter's default counters.
func (j *Joined) DCGM(w io.Writer, chosen *Selection) error {
	_, err := w.Write(j.AppendDCGM(nil, chosen))
	return err
}

// AppendDCGM appends that page to a text.
func (j *Joined) AppendDCGM(to []byte, chosen *Selection) []byte {
	if chosen == nil {
		chosen = defaultSelection
	}
	p := &page{text: to}
	units := j.dcgmUnits(chosen)
	for i := range chosen.rows {
		row := chosen.rows[i].row
		p.begin(&chosen.rows[i].family)
		for _, u := range units {
			switch {
			case !u.shows(row), !u.board.Up && !row.events():
			case row.counted != nil:
				for _, c := range row.counted(u.board) {
					p.sample(float64(c.count), u.labels, c.labels)
				}
			default:
				p.sample(u.value(row), u.labels, nil)
			}
		}
	}
	return p.text
}

// dcgmUnit is a GPU or a GPU instance: DCGM has series for both.
type dcgmUnit struct {
	board *board
	*device
	labels []byte
}

// events reports whether the row counts errors (Events and XIDs), which a GPU also shows while it does not respond.
func (r *dcgmRow) events() bool {
	return !slices.ContainsFunc(r.of.fields, func(f Field) bool { return !Events.Has(f) })
}

// dcgmUnits are the units of all GPUs that have responded.
func (j *Joined) dcgmUnits(chosen *Selection) []dcgmUnit {
	var units []dcgmUnit
	for _, b := range j.boards {
		if !b.described() {
			continue
		}
		for _, d := range b.all {
			if !d.first {
				continue
			}
			same := []*device{d}
			for _, other := range b.migs {
				if d.mig != nil && other != d && other.mig.GPUInstance == d.mig.GPUInstance {
					same = append(same, other)
				}
			}
			units = append(units, dcgmUnit{b, d, j.dcgmLabels(b, d, podOf(same), chosen)})
		}
	}
	return units
}

// shows reports whether the unit shows the row. Each value appears at one level: a GPU in MIG mode shows the values of the board, its GPU
// instances the others.
func (u *dcgmUnit) shows(row *dcgmRow) bool {
	if u.mig != nil {
		return row.instance
	}
	return !row.instance || !u.board.Identity.MIGMode && len(u.board.migs) == 0
}

func (u *dcgmUnit) value(row *dcgmRow) float64 {
	if row.of.fields != nil {
		return row.of.value(u.values(), u.mig != nil)
	}
	if last := u.board.lastXIDs(); len(last) > 0 {
		return float64(last[0].Code)
	}
	return 0
}

// dcgmOwnLabels are the labels that the page adds to dcgmLabels and pod labels.
var dcgmOwnLabels = []string{
	"gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "Hostname", "hostname", "namespace", "pod", "pod_uid",
	"container", "xid", "clock_event", "window_size_in_ms",
}

// dcgmLabels are dcgm-exporter's labels. The host appears under the names of older and newer versions of it. Without a pod, the pod's
// labels are written empty: otherwise Prometheus would add the exporter's own pod when it honors labels.
func (j *Joined) dcgmLabels(b *board, d *device, pod Container, chosen *Selection) []byte {
	i := &b.Identity
	to := labels("gpu", strconv.Itoa(i.Index), "UUID", string(i.UUID), "pci_bus_id", dcgmBusID(i.PCIBusID),
		"device", i.Device, "modelName", i.Name)
	if d.mig != nil {
		to = appendLabel(to, "GPU_I_PROFILE", d.mig.Profile)
		to = appendLabel(to, "GPU_I_ID", strconv.Itoa(d.mig.GPUInstance))
	}
	to = appendLabel(to, "Hostname", j.exporter.Node)
	to = appendLabel(to, "hostname", j.exporter.Node)
	for _, l := range chosen.labels {
		to = appendLabel(to, l.name, l.of(i))
	}
	to = appendLabel(to, "namespace", pod.Namespace)
	to = appendLabel(to, "pod", pod.Pod)
	if j.exporter.PodUID {
		to = appendLabel(to, "pod_uid", pod.PodUID)
	}
	to = j.appendPodLabels(to, pod.PodUID, (*PodLabel).dcgmName)
	return appendLabel(to, "container", pod.Name)
}

// podOf is the container that uses the devices exclusively, or the pod without container if several containers of one pod use them. It is
// empty otherwise, and if the values concern a previous user of the device.
func podOf(devices []*device) Container {
	var one *Container
	for _, d := range devices {
		if d.stale() || slices.ContainsFunc(d.allocations, func(a *Allocation) bool { return len(a.Containers) == 0 }) {
			return Container{}
		}
		for _, h := range d.holders {
			switch {
			case one == nil:
				c := h.Container
				one = &c
			case one.Namespace != h.Namespace || one.Pod != h.Pod:
				return Container{}
			case one.Name != h.Name:
				one.Name = ""
			}
		}
	}
	if one == nil {
		return Container{}
	}
	return *one
}

// dcgmBusID is a PCI address in DCGM's format: a domain of eight digits, upper case.
func dcgmBusID(id string) string {
	domain, rest, found := strings.Cut(id, ":")
	if !found {
		return id
	}
	return strings.ToUpper(strings.Repeat("0", max(0, 8-len(domain))) + domain + ":" + rest)
}
