package metrics

import (
	"fmt"
	"slices"
)

// PodLabel is a pod label that is added to series that name a pod.
type PodLabel struct {
	// Key is the key of the label in Kubernetes.
	Key string
	// native is its name on the page with Prism's names, as in kube-state-metrics. dcgm is its name on the page with DCGM's names, as in
	// dcgm-exporter.
	native, dcgm string
}

// scrapeLabels are the labels that Prometheus, its operator and the chart's monitors add to targets. The monitors honor labels, so a pod
// label of the same name would replace them.
var scrapeLabels = []string{"job", "instance", "node", "metrics_path", "endpoint", "service"}

// PodLabels are the labels of pods with these keys, in their order. It returns an error if two keys would become the same label of a
// series.
func PodLabels(keys []string) ([]PodLabel, error) {
	all := make([]PodLabel, 0, len(keys))
	for _, key := range keys {
		name := promName(key)
		l := PodLabel{Key: key, native: "label_" + snakeCase(name), dcgm: name}
		switch {
		case slices.Contains(dcgmOwnLabels, name), slices.Contains(scrapeLabels, name),
			slices.ContainsFunc(dcgmLabels, func(l identityLabel) bool { return l.name == name }):
			l.dcgm = l.native
		case name[0] >= '0' && name[0] <= '9':
			l.dcgm = "_" + name // label names must not begin with a digit
		}
		for _, before := range all {
			name := l.native
			if before.dcgm == l.dcgm {
				name = l.dcgm
			}
			if before.native == l.native || before.dcgm == l.dcgm {
				return nil, fmt.Errorf("pod labels %q and %q would both become label %s of metrics: remove one of them", before.Key, key, name)
			}
		}
		all = append(all, l)
	}
	return all, nil
}

// snakeCase inserts an underscore before each capital letter that follows a lower-case letter or a digit, and returns lower case, as
// kube-state-metrics writes label names.
func snakeCase(name string) string {
	snake := make([]byte, 0, len(name))
	for i := range len(name) {
		c := name[i]
		if c >= 'A' && c <= 'Z' {
			if i > 0 && (name[i-1] >= 'a' && name[i-1] <= 'z' || name[i-1] >= '0' && name[i-1] <= '9') {
				snake = append(snake, '_')
			}
			c += 'a' - 'A'
		}
		snake = append(snake, c)
	}
	return string(snake)
}

// podLabel is the value of a pod's selected label with this index; empty if the pod does not set it or it is unknown.
func (j *Joined) podLabel(uid string, index int) string {
	if values := j.podLabels[uid]; index < len(values) {
		return values[index]
	}
	return ""
}

// appendPodLabels writes the selected labels of a pod, also if the pod does not set them: otherwise a scrape that copies labels of the
// target would add the labels of the exporter's own pod.
func (j *Joined) appendPodLabels(to []byte, uid string, name func(*PodLabel) string) []byte {
	for i := range j.exporter.PodLabels {
		to = appendLabel(to, name(&j.exporter.PodLabels[i]), j.podLabel(uid, i))
	}
	return to
}

func (l *PodLabel) nativeName() string { return l.native }
func (l *PodLabel) dcgmName() string   { return l.dcgm }
