package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/profiler/rules"
)

// Policy limits the profiles that claims may request.
type Policy interface {
	// Limit returns the reason why a configuration of a claim in that namespace is not allowed. A policy that cannot be read allows
	// everything. The configuration may be changed.
	Limit(ctx context.Context, namespace string, config *v1alpha1.ProfilerConfig) error
}

// profile returns the extension that compares the configurations of one request with the policy.
func (o *OpaqueConfig) profile(ctx context.Context, namespace string) claim.PlanExtension {
	extension := claim.ProfileExtension{}
	if o.Profiles != nil {
		extension.Policy = func(c *v1alpha1.ProfilerConfig) error { return o.Profiles.Limit(ctx, namespace, c) }
	}
	return extension
}

// ProfileRules is the policy in the ConfigMap that nodes read. It is read for each claim that requests a profile; such claims are rare.
type ProfileRules struct {
	Reader client.Reader
	Map    types.NamespacedName
}

// Limit implements Policy. The node decides if the policy cannot be read or is invalid.
func (p ProfileRules) Limit(ctx context.Context, namespace string, config *v1alpha1.ProfilerConfig) error {
	read := &corev1.ConfigMap{}
	if err := p.Reader.Get(ctx, p.Map, read); err != nil {
		return nil
	}
	known, err := rules.Parse([]byte(read.Data[rules.Key]))
	if err != nil {
		return nil
	}
	return known.Policy.Limit(namespace, config)
}
