package metrics

import (
	"fmt"
	"slices"
)

// PodLabel is a label of pods whose value the series have that name a pod.
type PodLabel struct {
	// Key is that of the label in Kubernetes.
	Key string
	// native is its name on the page of Prism's names: that of kube-state-metrics. dcgm is its name on the page of DCGM's names: that of
	// dcgm-exporter.
	native, dcgm string
}

// scrapeLabels are those that Prometheus, its operator and the chart's monitors give to what is scraped. The monitors honor labels, so that a
// pod's label of the same name would replace them.
var scrapeLabels = []string{"job", "instance", "node", "metrics_path", "endpoint", "service"}

// PodLabels are the labels of pods with these keys, in their order. Keys that would be one label of a series are an error.
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
			l.dcgm = "_" + name // names of labels begin with no digit
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

// snakeCase is a name with an underscore before each capital letter that follows a small one or a digit, and no capital letter, as
// kube-state-metrics writes names of labels.
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

// podLabel is the value of the chosen label with this index of a pod, empty where the pod does not have it or it is not known.
func (j *Joined) podLabel(uid string, index int) string {
	if values := j.podLabels[uid]; index < len(values) {
		return values[index]
	}
	return ""
}

// appendPodLabels writes the chosen labels of a pod, also those that it does not have: a series without them would get those of the exporter's
// own pod where a scrape copies them to what is scraped.
func (j *Joined) appendPodLabels(to []byte, uid string, name func(*PodLabel) string) []byte {
	for i := range j.exporter.PodLabels {
		to = appendLabel(to, name(&j.exporter.PodLabels[i]), j.podLabel(uid, i))
	}
	return to
}

func (l *PodLabel) nativeName() string { return l.native }
func (l *PodLabel) dcgmName() string   { return l.dcgm }
