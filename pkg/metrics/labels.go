package metrics

import (
	"slices"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// deviceLabels name a GPU, or a MIG device of it.
func deviceLabels(of gpu.UUID, mig gpu.UUID) []byte {
	if mig == "" {
		return labels("gpu_uuid", string(of))
	}
	return labels("gpu_uuid", string(of), "mig_uuid", string(mig))
}

// containerLabels name a container and a device of it. They are written empty where there is no container: a series without them would get
// the exporter's own pod when Prometheus honors its labels.
func containerLabels(c Container, of, mig gpu.UUID) []byte {
	return append(labels("namespace", c.Namespace, "pod", c.Pod, "container", c.Name, "gpu_uuid", string(of)), migLabel(mig)...)
}

func migLabel(mig gpu.UUID) []byte {
	if mig == "" {
		return nil
	}
	return append([]byte{','}, labels("mig_uuid", string(mig))...)
}

// labels are those of an allocation's info after its container and device, the claim's own labels last.
func (a *Allocation) labels() []byte {
	to := labels("claim", a.Claim, "request", a.Request, "pool", a.Pool, "device", a.Device, "share_id", a.ShareID, "type", string(a.Type))
	names := make([]string, 0, len(a.Options.Labels))
	for name := range a.Options.Labels {
		names = append(names, name)
	}
	slices.Sort(names)
	var written []string
	for _, name := range names {
		as := "claim_label_" + labelName(name)
		if len(written) == maxLabels || slices.Contains(written, as) {
			continue
		}
		written = append(written, as)
		to = appendLabel(to, as, a.Options.Labels[name])
	}
	return to
}
