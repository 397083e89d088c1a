package metrics

import (
	"slices"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// deviceLabels name a GPU or one of its MIG devices.
func deviceLabels(of gpu.UUID, mig gpu.UUID) []byte {
	if mig == "" {
		return labels("gpu_uuid", string(of))
	}
	return labels("gpu_uuid", string(of), "mig_uuid", string(mig))
}

// containerLabels name a container and its device. Without a container they are written empty: otherwise Prometheus would add the
// exporter's own pod when it honors labels.
func containerLabels(c Container, of, mig gpu.UUID) []byte {
	return append(labels("namespace", c.Namespace, "pod", c.Pod, "container", c.Name, "gpu_uuid", string(of)), migLabel(mig)...)
}

func migLabel(mig gpu.UUID) []byte {
	if mig == "" {
		return nil
	}
	return append([]byte{','}, labels("mig_uuid", string(mig))...)
}

// labels are the labels of an allocation's info after container and device, the claim's own labels last.
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
