package reports

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Selection selects reports; the zero value selects all.
type Selection struct {
	// Labels and Fields are selectors as users write them.
	Labels, Fields string
	// Claim, Pod, Container, Process and Node are names.
	Claim, Pod, Container, Process, Node string
}

// Empty reports whether the selection selects all.
func (s Selection) Empty() bool { return s == Selection{} }

// options returns the options of a list request, or an error for an invalid selector.
func (s Selection) options() (metav1.ListOptions, error) {
	if _, err := labels.Parse(s.Labels); err != nil {
		return metav1.ListOptions{}, fmt.Errorf("--selector: %w", err)
	}
	written, err := fields.ParseSelector(s.Fields)
	if err != nil {
		return metav1.ListOptions{}, fmt.Errorf("--field-selector: %w", err)
	}
	var all []fields.Selector
	if s.Fields != "" {
		all = append(all, written)
	}
	for _, term := range []struct{ field, value string }{
		{"spec.claim", s.Claim}, {"spec.pod", s.Pod}, {"spec.container", s.Container}, {"spec.process", s.Process}, {"spec.node", s.Node},
	} {
		if term.value != "" {
			all = append(all, fields.OneTermEqualSelector(term.field, term.value))
		}
	}
	return metav1.ListOptions{LabelSelector: s.Labels, FieldSelector: fields.AndSelectors(all...).String()}, nil
}
