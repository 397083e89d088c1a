package session

import (
	"errors"
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

// Fields returns the fields of the session in the API for field selectors.
func (s Session) Fields() map[string]string {
	return map[string]string{
		"metadata.name": s.ID, "metadata.namespace": s.Namespace, "spec.claim": s.Claim, "spec.claimUID": s.ClaimUID, "spec.pod": s.Pod,
		"spec.container": s.Container, "spec.node": s.Node, "spec.process": s.Process, "status.state": string(s.State),
	}
}

// Selects returns the function that reports whether a selection selects a session. It refuses selectors that do not parse, and unknown
// fields.
func Selects(of Selection) (func(Session) bool, error) {
	byLabel, err := labels.Parse(of.Labels)
	if err != nil {
		return nil, fmt.Errorf("label selector: %w", err)
	}
	byField, err := fields.ParseSelector(of.Fields)
	if err != nil {
		return nil, fmt.Errorf("field selector: %w", err)
	}
	known := Session{}.Fields()
	for _, r := range byField.Requirements() {
		if _, ok := known[r.Field]; !ok {
			return nil, fmt.Errorf("field selector: unknown field %q", r.Field)
		}
	}
	return func(one Session) bool {
		return byLabel.Matches(labels.Set(one.Labels())) && byField.Matches(fields.Set(one.Fields()))
	}, nil
}

// ErrInvalid is the error of a command that no node accepts.
var ErrInvalid = errors.New("invalid command")

// Claim is a prepared claim that is armed on demand.
type Claim struct {
	Claim     string `json:"claim"`
	ClaimUID  string `json:"claimUID"`
	Namespace string `json:"namespace"`
	Armed     bool   `json:"armed"`
}
