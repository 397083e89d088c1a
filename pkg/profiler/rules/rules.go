// Package rules contains the rules of a cluster's administrator for profiles, in addition to classes: the chart's values profiler.policy,
// which limits the requests of claims, and profiler.defaults, which profiles claims of chosen namespaces and pods. It is pure.
package rules

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

// Rules is a document of both. The zero value allows every namespace, denies args, and contains no defaults.
type Rules struct {
	Policy   Policy    `json:"policy,omitempty"`
	Defaults []Default `json:"defaults,omitempty"`
}

// Policy limits the requests of claims.
type Policy struct {
	// Args specifies whether ProfilerConfig may set args: ArgsDeny or ArgsAllow; empty is ArgsDeny.
	Args string `json:"args,omitempty"`
	// Namespaces are the namespaces whose claims may be profiled; empty: all.
	Namespaces []string `json:"namespaces,omitempty"`
	// MaxBytes and MaxRetention are the maximum values of output.maxBytes and output.retention; nil: unlimited.
	MaxBytes     *resource.Quantity `json:"maxBytes,omitempty"`
	MaxRetention *metav1.Duration   `json:"maxRetention,omitempty"`
	// MaxDuration is the maximum duration of a recording; nil: 24h.
	MaxDuration *metav1.Duration `json:"maxDuration,omitempty"`
}

// The values of Policy.Args.
const (
	ArgsDeny  = "Deny"
	ArgsAllow = "Allow"
)

// Default profiles the claims that meet all of its conditions; without conditions, every claim.
type Default struct {
	// Namespaces contains the namespace of the claim.
	Namespaces []string `json:"namespaces,omitempty"`
	// NamespaceSelector selects the claim's namespace by its labels, PodSelector the first pod that the claim is reserved for.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	PodSelector       *metav1.LabelSelector `json:"podSelector,omitempty"`
	// Config is merged over the configuration of the class. Its header is optional.
	Config v1alpha1.ProfilerConfig `json:"config"`

	namespace, pod labels.Selector
}

// Key is the key of the document in the ConfigMap.
const Key = "profiler.yaml"

// kind is the name of the document in errors.
const kind = "profiler"

// maxDefaults limits the defaults that every claim is compared with.
const maxDefaults = 64

// Parse reads a document in YAML or JSON, as strictly as a ProfilerConfig. An empty document contains no rules.
func Parse(raw []byte) (*Rules, error) {
	r := &Rules{}
	if len(bytes.TrimSpace(raw)) == 0 {
		return r, nil
	}
	if err := v1alpha1.DecodeForeign(raw, kind, r); err != nil {
		return nil, err
	}
	problems := []error{r.Policy.validate()}
	if len(r.Defaults) > maxDefaults {
		problems = append(problems, fmt.Errorf("defaults: must have at most %d items, got %d", maxDefaults, len(r.Defaults)))
	}
	for i := range r.Defaults {
		if err := r.Defaults[i].compile(); err != nil {
			problems = append(problems, fmt.Errorf("defaults[%d].%w", i, err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return r, nil
}

func (p *Policy) validate() error {
	if p.Args != "" && p.Args != ArgsDeny && p.Args != ArgsAllow {
		return fmt.Errorf("policy.args: unsupported value %q; supported values: %s, %s", p.Args, ArgsDeny, ArgsAllow)
	}
	if p.MaxBytes != nil && p.MaxBytes.Sign() <= 0 {
		return fmt.Errorf("policy.maxBytes: must be greater than 0, got %s", p.MaxBytes)
	}
	if p.MaxRetention != nil && p.MaxRetention.Duration <= 0 {
		return fmt.Errorf("policy.maxRetention: must be greater than 0s, got %s", p.MaxRetention.Duration)
	}
	return nil
}

// compile checks a default and parses its selectors.
func (d *Default) compile() error {
	c := &d.Config
	version, of := cmp.Or(c.APIVersion, v1alpha1.APIVersion), cmp.Or(c.TypeMeta.Kind, v1alpha1.KindProfilerConfig)
	if version != v1alpha1.APIVersion || of != v1alpha1.KindProfilerConfig {
		return fmt.Errorf("config: must be a %s of %s, got %s of %s", v1alpha1.KindProfilerConfig, v1alpha1.APIVersion, of, version)
	}
	c.APIVersion, c.TypeMeta.Kind = version, of
	if c.ClaimOverride != nil {
		return errors.New("config.claimOverride: must not be set here; only a DeviceClass may set it")
	}
	if err := c.Validate(); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	var err error
	if d.namespace, err = selector(d.NamespaceSelector); err != nil {
		return fmt.Errorf("namespaceSelector: %w", err)
	}
	if d.pod, err = selector(d.PodSelector); err != nil {
		return fmt.Errorf("podSelector: %w", err)
	}
	return nil
}

// selector compiles a selector; nil for none.
func selector(of *metav1.LabelSelector) (labels.Selector, error) {
	if of == nil {
		return nil, nil
	}
	return metav1.LabelSelectorAsSelector(of)
}

// Claim contains the properties that defaults select claims by.
type Claim struct {
	Namespace string
	// NamespaceLabels and PodLabels read labels. They are called only for a default with such a selector whose other conditions are met,
	// each at most once.
	NamespaceLabels, PodLabels func() (map[string]string, error)
}

// Match returns the configurations of the defaults for a claim, in their order. Policy.Namespaces must allow its namespace. Defaults whose
// labels cannot be read are omitted; the error is the reason, and a *Required if one of them sets failurePolicy FailClosed.
func (r *Rules) Match(c Claim) (configs []*v1alpha1.ProfilerConfig, err error) {
	if !r.Policy.allows(c.Namespace) {
		return nil, nil
	}
	required := false
	namespaceLabels, podLabels := once(c.NamespaceLabels), once(c.PodLabels)
	for i := range r.Defaults {
		d := &r.Defaults[i]
		if len(d.Namespaces) > 0 && !slices.Contains(d.Namespaces, c.Namespace) {
			continue
		}
		matched, problem := matches(d.namespace, namespaceLabels)
		if matched && problem == nil {
			matched, problem = matches(d.pod, podLabels)
		}
		switch {
		case problem != nil:
			err = errors.Join(err, fmt.Errorf("profiler.defaults[%d] is ignored: %w", i, problem))
			required = required || d.closed()
		case matched:
			configs = append(configs, &d.Config)
		}
	}
	if required {
		err = &Required{err}
	}
	return configs, err
}

// closed reports whether the claims that the default selects must be profiled.
func (d *Default) closed() bool {
	off := d.Config.Enabled != nil && !*d.Config.Enabled
	return !off && d.Config.FailurePolicy != nil && *d.Config.FailurePolicy == v1alpha1.FailClosed
}

// Required is the error of a default that must be applied, but cannot be decided now.
type Required struct{ Err error }

func (r *Required) Error() string { return r.Err.Error() }

// Unwrap returns the cause.
func (r *Required) Unwrap() error { return r.Err }

func matches(selector labels.Selector, ask func() (map[string]string, error)) (bool, error) {
	if selector == nil {
		return true, nil
	}
	set, err := ask()
	return err == nil && selector.Matches(labels.Set(set)), err
}

// once calls ask at most once.
func once(ask func() (map[string]string, error)) func() (map[string]string, error) {
	var asked bool
	var set map[string]string
	var err error
	return func() (map[string]string, error) {
		if !asked {
			asked = true
			set, err = ask()
		}
		return set, err
	}
}

// allows reports whether claims of a namespace may be profiled.
func (p *Policy) allows(namespace string) bool {
	return len(p.Namespaces) == 0 || slices.Contains(p.Namespaces, namespace)
}

// Limit returns why a merged configuration of a claim in that namespace is not allowed. Otherwise it applies the policy's limits to unset
// fields whose default is higher.
func (p *Policy) Limit(namespace string, c *v1alpha1.ProfilerConfig) error {
	switch {
	case !p.allows(namespace):
		return fmt.Errorf("profiles are not allowed in namespace %s; profiler.policy.namespaces allows: %s",
			namespace, strings.Join(p.Namespaces, ", "))
	case len(c.Args) > 0 && p.Args != ArgsAllow:
		return errors.New("ProfilerConfig.args are not allowed: profiler.policy.args is Deny")
	}
	filled, err := v1alpha1.MergeProfiler(c, nil, v1alpha1.FromClaim)
	if err != nil {
		return err
	}
	filled.Default()
	asked := c.Output
	if asked == nil {
		asked = &v1alpha1.ProfilerOutput{}
	}
	limited := *asked
	if p.MaxBytes != nil && filled.Output.MaxBytes.Cmp(*p.MaxBytes) > 0 {
		if asked.MaxBytes != nil {
			return fmt.Errorf("ProfilerConfig.output.maxBytes must be less than or equal to profiler.policy.maxBytes, %s, got %s",
				p.MaxBytes, asked.MaxBytes)
		}
		limited.MaxBytes = new(p.MaxBytes.DeepCopy())
	}
	if p.MaxRetention != nil && filled.Output.Retention.Duration > p.MaxRetention.Duration {
		if asked.Retention != nil {
			return fmt.Errorf("ProfilerConfig.output.retention must be less than or equal to profiler.policy.maxRetention, %s, got %s",
				p.MaxRetention.Duration, asked.Retention.Duration)
		}
		limited.Retention = new(*p.MaxRetention)
	}
	c.Output = &limited
	return nil
}
