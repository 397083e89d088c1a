package session

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// labelPrefix is the prefix of the keys of labels.
const labelPrefix = "gpu.prism.dev/"

// Labels returns the labels of the session in the API: the properties that are valid in a label.
func (s Session) Labels() map[string]string {
	all := map[string]string{}
	for key, value := range map[string]string{"claim": s.Claim, "pod": s.Pod, "container": s.Container, "node": s.Node} {
		if value != "" && len(validation.IsValidLabelValue(value)) == 0 {
			all[labelPrefix+key] = value
		}
	}
	return all
}

// Fields returns the fields for field selectors.
func (s Session) Fields() map[string]string {
	return map[string]string{
		"metadata.name": s.ID, "metadata.namespace": s.Namespace, "spec.claim": s.Claim, "spec.claimUID": s.ClaimUID, "spec.pod": s.Pod,
		"spec.container": s.Container, "spec.node": s.Node, "spec.process": s.Process, "status.state": string(s.State),
	}
}

// Compile returns a function that reports whether a session is selected. The error begins with the name of the invalid
// selector, as in the API.
func (c Selection) Compile() (func(Session) bool, error) {
	byLabel, err := labels.Parse(c.Labels)
	if err != nil {
		return nil, fmt.Errorf("labelSelector: %w", err)
	}
	byField, err := fields.ParseSelector(c.Fields)
	if err != nil {
		return nil, fmt.Errorf("fieldSelector: %w", err)
	}
	known := Session{}.Fields()
	for _, one := range byField.Requirements() {
		if _, found := known[one.Field]; !found {
			return nil, fmt.Errorf("fieldSelector: %s is not supported", one.Field)
		}
	}
	if byLabel.Empty() && byField.Empty() {
		return func(Session) bool { return true }, nil
	}
	return func(s Session) bool {
		return byLabel.Matches(labels.Set(s.Labels())) && byField.Matches(fields.Set(s.Fields()))
	}, nil
}

// Exact returns the value that a field of every selected session has; "" if the selectors allow several values.
func (c Selection) Exact(field string) string {
	byField, err := fields.ParseSelector(c.Fields)
	if err != nil {
		return ""
	}
	value, _ := byField.RequiresExactMatch(field)
	return value
}
