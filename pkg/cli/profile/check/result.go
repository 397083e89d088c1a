package check

import (
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

// Answer specifies whether processes are profiled.
type Answer string

// The answers.
const (
	Yes Answer = "yes"
	No  Answer = "no"
	// Depends is the answer if it requires more than the user can read.
	Depends Answer = "depends"
)

// Result is the result for a pod.
type Result struct {
	Namespace  string      `json:"namespace"`
	Pod        string      `json:"pod"`
	Node       string      `json:"node,omitempty"`
	Containers []Container `json:"containers"`
	// Notes apply to all containers.
	Notes []string `json:"notes,omitempty"`
}

// Container is the result for a container.
type Container struct {
	Name string `json:"name"`
	Verdict
	Claims []Claim `json:"claims,omitempty"`
	// Reports are the numbers of its reports by state.
	Reports map[string]int `json:"reports,omitempty"`
}

// Verdict specifies whether processes are profiled, why, and how to change it; Change is empty if there is nothing to change.
type Verdict struct {
	Profiled Answer `json:"profiled"`
	Because  string `json:"because"`
	Change   string `json:"change,omitempty"`
}

// String returns the verdict in one sentence.
func (v Verdict) String() string {
	text := fmt.Sprintf("profiled: %s, because %s", v.Profiled, v.Because)
	if v.Change != "" {
		text += "; " + v.Change
	}
	return text
}

// Claim is a claim that a container uses.
type Claim struct {
	// Name is the name in the pod, ResourceClaim the name of the object, Request the only request that the container uses; empty: all.
	Name          string `json:"name"`
	ResourceClaim string `json:"resourceClaim,omitempty"`
	Request       string `json:"request,omitempty"`
	// Config is the ProfilerConfig including all defaults; nil: none. From is its source.
	Config *v1alpha1.ProfilerConfig `json:"config,omitempty"`
	From   string                   `json:"from,omitempty"`
	// Conditions are the conditions about profiles of the first device of the driver with such conditions.
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	verdict Verdict
}

// Print writes the result as text, without escaping.
func (r *Result) Print(out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "Pod %s/%s", r.Namespace, r.Pod)
	if r.Node != "" {
		fmt.Fprintf(&text, " on node %s", r.Node)
	}
	text.WriteString("\n")
	for i := range r.Containers {
		if err := r.Containers[i].print(&text); err != nil {
			return err
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&text, "Note: %s\n", note)
	}
	_, err := io.WriteString(out, text.String())
	return err
}

func (c *Container) print(text *strings.Builder) error {
	fmt.Fprintf(text, "Container %s\n  %s\n", c.Name, c.Verdict)
	for _, state := range []string{"Recording", "Importing", "Ready", "Raw", "Lost"} {
		if n := c.Reports[state]; n > 0 {
			fmt.Fprintf(text, "  reports %s: %d\n", state, n)
		}
	}
	for i := range c.Claims {
		claim := &c.Claims[i]
		fmt.Fprintf(text, "  claim %s", claim.Name)
		if claim.ResourceClaim != "" {
			fmt.Fprintf(text, ", ResourceClaim %s", claim.ResourceClaim)
		}
		if claim.Request != "" {
			fmt.Fprintf(text, ", request %s", claim.Request)
		}
		text.WriteString("\n")
		for _, condition := range claim.Conditions {
			fmt.Fprintf(text, "    %s=%s %s: %s\n", condition.Type, condition.Status, condition.Reason, condition.Message)
		}
		if claim.Config == nil {
			continue
		}
		written, err := yaml.Marshal(claim.Config)
		if err != nil {
			return err
		}
		fmt.Fprintf(text, "    ProfilerConfig, %s:\n", claim.From)
		for line := range strings.Lines(string(written)) {
			text.WriteString("      " + line)
		}
	}
	return nil
}
