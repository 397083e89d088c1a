package reports

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Selection selects reports or sessions; the zero value selects all.
type Selection struct {
	// Labels and Fields are selectors as users write them.
	Labels, Fields string
	// Claim, Pod, Container, Process and Node are names.
	Claim, Pod, Container, Process, Node string
}

// Empty reports whether the selection selects all.
func (s Selection) Empty() bool { return s == Selection{} }

// Selectors returns the selection as selectors of the API, or an error for an invalid selector.
func (s Selection) Selectors() (ofLabels, ofFields string, err error) {
	if _, err := labels.Parse(s.Labels); err != nil {
		return "", "", fmt.Errorf("--selector: %w", err)
	}
	written, err := fields.ParseSelector(s.Fields)
	if err != nil {
		return "", "", fmt.Errorf("--field-selector: %w", err)
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
	return s.Labels, fields.AndSelectors(all...).String(), nil
}

// WithoutState returns the selection without field status.state, which commands change.
func (s Selection) WithoutState() Selection {
	written, err := fields.ParseSelector(s.Fields)
	if err != nil {
		return s
	}
	var others []fields.Selector
	for _, term := range written.Requirements() {
		switch {
		case term.Field == "status.state":
		case term.Operator == selection.NotEquals:
			others = append(others, fields.OneTermNotEqualSelector(term.Field, term.Value))
		default:
			others = append(others, fields.OneTermEqualSelector(term.Field, term.Value))
		}
	}
	s.Fields = fields.AndSelectors(others...).String()
	return s
}
