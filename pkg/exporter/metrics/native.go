package metrics

import (
	"io"
	"math"
	"slices"
	"strconv"
)

// Native writes the page with Prism's own names: OpenMetrics 1.0, or the text format 0.0.4.
func (j *Joined) Native(w io.Writer, openMetrics bool) error {
	_, err := w.Write(j.AppendNative(nil, openMetrics))
	return err
}

// AppendNative appends that page to a text.
func (j *Joined) AppendNative(to []byte, openMetrics bool) []byte {
	p := &page{text: to, openMetrics: openMetrics}
	p.gpus(j.boards)
	p.xids(j.boards)
	p.shares(j.boards)
	p.migs(j.boards)
	p.allocations(j, j.allocations)
	p.containers(j.boards, "")
	p.exporter(j)
	if openMetrics {
		p.text = append(p.text, "# EOF\n"...)
	}
	return p.text
}

// gpus writes the identity and the values of the GPUs.
func (p *page) gpus(boards []*board) {
	p.begin(&familyUp)
	for _, b := range boards {
		if !b.Released {
			p.sample(boolValue(b.Up), b.whole.labels, nil)
		}
	}
	p.begin(&familyInfo)
	for _, b := range boards {
		if b.described() {
			p.sample(1, b.whole.labels, b.info())
		}
	}
	for f := range FieldCount {
		if Table[f].GPU == "" {
			continue
		}
		p.begin(&gpuFamilies[f])
		for _, b := range boards {
			p.value(b.whole, f)
		}
	}
}

// value writes a device's value of a field, if it has one.
func (p *page) value(d *device, f Field) {
	if v, ok := d.values().Get(f); ok && d.gpu.shows(f) {
		p.sample(v, d.labels, nil)
	}
}

// shows reports whether the GPU's values of a field are shown.
func (g *GPU) shows(f Field) bool { return g.Up || Events.Has(f) }

// info are the labels of a GPU's identity.
func (b *board) info() []byte {
	i := &b.Identity
	return labels(
		"gpu", strconv.Itoa(i.Index), "device", i.Device, "pci_bus_id", i.PCIBusID, "name", i.Name, "brand", i.Brand,
		"architecture", i.Architecture, "serial", i.Serial, "vbios", i.VBIOS, "inforom", i.InfoROM, "driver_version", i.DriverVersion,
		"cuda_version", i.CUDAVersion, "mig_mode", strconv.FormatBool(i.MIGMode),
	)
}

// maxXIDs bounds the number of codes shown for a GPU, the last ones first.
const maxXIDs = 16

// xids writes the errors of the GPUs, counted from 0.
func (p *page) xids(boards []*board) {
	p.begin(&familyXIDs)
	for _, b := range boards {
		sum := uint64(0)
		for _, x := range b.XIDs {
			sum += x.Count
		}
		p.sample(float64(sum), b.whole.labels, nil)
	}
	for _, f := range []*Family{&familyXIDsByCode, &familyXIDLast} {
		p.begin(f)
		for _, b := range boards {
			for _, x := range b.lastXIDs() {
				value := float64(x.Count)
				if f == &familyXIDLast {
					value = seconds(x.Last)
				}
				p.sample(value, b.whole.labels, labels("xid", strconv.FormatUint(x.Code, 10), "gpu_instance", instanceText(x.GPUInstance)))
			}
		}
	}
}

// lastXIDs are a GPU's errors, the last ones first.
func (b *board) lastXIDs() []XID {
	if len(b.XIDs) == 0 {
		return nil
	}
	xids := slices.Clone(b.XIDs)
	slices.SortStableFunc(xids, func(a, b XID) int { return b.Last.Compare(a.Last) })
	return xids[:min(len(xids), maxXIDs)]
}

func instanceText(gpuInstance int) string {
	if gpuInstance < 0 {
		return ""
	}
	return strconv.Itoa(gpuInstance)
}

// shares writes the usage of the GPUs that no container causes.
func (p *page) shares(boards []*board) {
	p.begin(&familyForeign)
	for _, b := range boards {
		if b.Up && !b.ProcessesHidden {
			p.sample(float64(b.foreign), b.whole.labels, nil)
		}
	}
	p.begin(&familyUnattributed)
	for _, b := range boards {
		if b.Up {
			p.sample(b.unattributed(), b.whole.labels, nil)
		}
	}
}

// migs writes the identity and the values of MIG devices. The values concern a GPU instance, so one of its MIG devices shows them.
func (p *page) migs(boards []*board) {
	p.begin(&familyMIGInfo)
	for _, b := range boards {
		for _, d := range b.migs {
			p.sample(1, d.labels, labels("gpu", strconv.Itoa(b.Identity.Index), "profile", d.mig.Profile,
				"gpu_instance", strconv.Itoa(d.mig.GPUInstance), "compute_instance", strconv.Itoa(d.mig.ComputeInstance)))
		}
	}
	for f := range FieldCount {
		if Table[f].MIG == "" {
			continue
		}
		p.begin(&migFamilies[f])
		for _, b := range boards {
			for _, d := range b.migs {
				if d.first {
					p.value(d, f)
				}
			}
		}
	}
}

// allocations writes the devices of containers, with the UID and the labels of the pod if requested.
func (p *page) allocations(j *Joined, list []*Allocation) {
	p.begin(&familyAllocation)
	seen := map[string]bool{}
	for _, a := range list {
		claim := a.labels()
		containers := a.Containers
		if len(containers) == 0 {
			containers = []Container{{Namespace: a.Namespace}}
		}
		for _, c := range containers {
			of, more := containerLabels(c, a.GPU, a.MIG), slices.Clip(claim)
			if j.exporter.PodUID {
				more = appendLabel(more, "pod_uid", c.PodUID)
			}
			more = j.appendPodLabels(more, c.PodUID, (*PodLabel).nativeName)
			if series := string(of) + string(more); !seen[series] {
				seen[series] = true
				p.sample(1, of, more)
			}
		}
	}
}

// containers writes the usage of the containers of one claim, or of all for "".
func (p *page) containers(boards []*board, claim string) {
	each := func(f *Family, value func(h *holder) float64) {
		p.begin(f)
		for _, b := range boards {
			for _, d := range b.all {
				for _, h := range d.holders {
					if claim == "" || slices.Contains(h.claims, claim) {
						p.sample(value(h), h.labels, h.podLabels)
					}
				}
			}
		}
	}
	each(&familyContainerUtilization, func(h *holder) float64 { return h.utilization })
	each(&familyContainerMemory, func(h *holder) float64 { return h.memory })
	each(&familyContainerMemoryTotal, func(h *holder) float64 { return h.total })
	byCommand := func(f *Family, value func(use commandUse) float64) {
		each(f, func(h *holder) float64 {
			for _, use := range h.uses {
				p.sample(value(use), h.labels, appendLabel(slices.Clip(h.podLabels), "command", use.command))
			}
			return math.NaN()
		})
	}
	byCommand(&familyProcessUtilization, func(use commandUse) float64 { return use.utilization })
	byCommand(&familyProcessMemory, func(use commandUse) float64 { return use.memory })
}

// exporter writes the state of the exporter itself.
func (p *page) exporter(j *Joined) {
	e := &j.exporter
	p.begin(&familyBuild)
	p.sample(1, labels("version", e.Version), nil)
	p.begin(&familySampled)
	hidden := false
	for _, b := range j.boards {
		if !b.Released {
			p.sample(seconds(b.At), b.whole.labels, nil)
		}
		hidden = hidden || b.ProcessesHidden
	}
	p.begin(&familyInterval)
	for _, b := range j.boards {
		p.sample(b.Interval.Seconds(), b.whole.labels, nil)
	}
	p.begin(&familyNVMLErrors)
	for _, b := range j.boards {
		p.sample(float64(e.NVMLErrors[b.Identity.UUID]), b.whole.labels, nil)
	}
	p.begin(&familySamplesRead)
	for _, b := range j.boards {
		if b.Up {
			p.sample(boolValue(b.ProcessesSampled), b.whole.labels, nil)
		}
	}
	p.one(&familySamplesDropped, float64(e.SamplesDropped))
	p.one(&familyReopened, float64(e.SessionsReopened))
	p.one(&familyHidden, boolValue(hidden))
	for _, f := range []*Family{&familySourceUp, &familySourceRead, &familySourceErrors} {
		p.begin(f)
		for _, s := range e.Sources {
			value := boolValue(s.OK)
			switch f {
			case &familySourceRead:
				value = seconds(s.At)
			case &familySourceErrors:
				value = float64(s.Errors)
			}
			p.sample(value, labels("source", s.Name), nil)
		}
	}
	p.one(&familyUnidentified, float64(e.GPUsUnidentified))
	p.one(&familyReleased, boolValue(e.GPUsReleased))
	p.one(&familyLimited, float64(e.IntervalsLimited))
	p.problems(e.Problems)
	p.one(&familyOTLPErrors, float64(e.OTLPErrors))
}

// problems writes the ignored fields of the CSV, each once.
func (p *page) problems(problems []Problem) {
	p.begin(&familyProblems)
	seen := map[string]bool{}
	for _, problem := range problems {
		if field := bounded(problem.Field, maxText); !seen[field] {
			seen[field] = true
			p.sample(1, labels("field", field), nil)
		}
	}
}
