package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/profiler/rules"
)

// layer is a configuration of a class or of a claim.
type layer struct {
	of     string
	from   v1alpha1.Source
	config *resourceapi.DeviceConfiguration
}

// merged merges the visible configurations for a request as the node would do now. from names the merged sources; refusal explains why the
// node would refuse them.
func (f *Facts) merged(object *resourceapi.ResourceClaim, request string) (config *v1alpha1.ProfilerConfig, from string, refusal *Verdict) {
	layers, unknown := f.layers(object, request)
	if unknown != "" {
		return nil, "", &Verdict{Depends, unknown, "check again when the claim is allocated: its status then contains the configuration of the class"}
	}
	var names []string
	lay := func(of string, source v1alpha1.Source, over *v1alpha1.ProfilerConfig) error {
		next, err := v1alpha1.MergeProfiler(config, over, source)
		if err != nil {
			return fmt.Errorf("%s: %w", of, err)
		}
		config = next
		if !slices.Contains(names, of) {
			names = append(names, of)
		}
		return nil
	}
	for _, source := range []v1alpha1.Source{v1alpha1.FromClass, v1alpha1.FromDefaults, v1alpha1.FromClaim} {
		err := f.defaults(source, lay)
		for _, l := range layers {
			if err == nil && l.from == source {
				err = f.lay(l, lay)
			}
		}
		if err != nil {
			return nil, "", &Verdict{No, "the node will refuse the claim: " + err.Error(), "correct the ProfilerConfig"}
		}
	}
	if err := f.valid(object, config); err != nil {
		return nil, "", &Verdict{No, "the node will refuse the claim: " + strings.ReplaceAll(err.Error(), "\n", "; "), "correct the configuration"}
	}
	if config == nil {
		return nil, "", nil
	}
	from = "merged from " + strings.Join(names, ", ")
	if disabled := config.Enabled != nil && !*config.Enabled; f.Rules != nil && !disabled {
		if err := f.Rules.Policy.Limit(f.Pod.Namespace, config); err != nil { // limits apply to set fields, not to defaults
			refusal = &Verdict{No, err.Error(), "change the ProfilerConfig, or ask an administrator to change profiler.policy"}
		}
	}
	return config, from, refusal
}

// valid returns the errors of the admission webhook, and conflicts within the merged configuration.
func (f *Facts) valid(object *resourceapi.ResourceClaim, config *v1alpha1.ProfilerConfig) error {
	validator := claim.Validator{Driver: f.Driver, Class: func(name string) *resourceapi.DeviceClass { return f.Classes[name] }}
	if err := validator.Claim("spec", &object.Spec); err != nil || config == nil {
		return err
	}
	filled, err := v1alpha1.MergeProfiler(config, nil, v1alpha1.FromClass)
	if err != nil {
		return err
	}
	filled.Default()
	return filled.Validate()
}

// lay decodes a layer, and lays it if it is a ProfilerConfig.
func (f *Facts) lay(l layer, lay func(string, v1alpha1.Source, *v1alpha1.ProfilerConfig) error) error {
	if l.config.Opaque == nil || l.config.Opaque.Driver != f.Driver || v1alpha1.WrittenForNVIDIA(l.config.Opaque.Parameters.Raw) {
		return nil
	}
	decoded, err := v1alpha1.Decode(l.config.Opaque.Parameters.Raw)
	if err != nil {
		return fmt.Errorf("%s: %w", l.of, err)
	}
	if config, ok := decoded.(*v1alpha1.ProfilerConfig); ok {
		return lay(l.of, l.from, config)
	}
	return nil
}

// defaults adds the defaults of the cluster, if this source is due and they are visible.
func (f *Facts) defaults(source v1alpha1.Source, lay func(string, v1alpha1.Source, *v1alpha1.ProfilerConfig) error) error {
	if source != v1alpha1.FromDefaults || f.Rules == nil {
		return nil
	}
	labels := f.NamespaceLabels
	if labels == nil {
		labels = func() (map[string]string, error) {
			return nil, errors.New("the labels of the namespace are not visible")
		}
	}
	configs, err := f.Rules.Match(rules.Claim{
		Namespace: f.Pod.Namespace, NamespaceLabels: labels,
		PodLabels: func() (map[string]string, error) { return f.Pod.Labels, nil },
	})
	for _, config := range configs {
		if err := lay("the defaults of the cluster", source, config); err != nil {
			return err
		}
	}
	// The node also ignores a default that cannot be decided.
	_ = err
	return nil
}

// layers returns the configurations for a request: of the allocation, or of claim and classes if there is no allocation yet.
func (f *Facts) layers(object *resourceapi.ResourceClaim, request string) (layers []layer, unknown string) {
	written := "ResourceClaim " + object.Name
	if object.Status.Allocation != nil {
		for i := range object.Status.Allocation.Devices.Config {
			c := &object.Status.Allocation.Devices.Config[i]
			l := layer{written, v1alpha1.FromClaim, &c.DeviceConfiguration}
			if c.Source == resourceapi.AllocationConfigSourceClass {
				l.of, l.from = "the DeviceClass", v1alpha1.FromClass
			}
			if f.concerns(c.Requests, request) {
				layers = append(layers, l)
			}
		}
		return layers, ""
	}
	for _, name := range classes(object, request) {
		class := f.Classes[name]
		if class == nil {
			return nil, fmt.Sprintf("DeviceClass %s cannot be read: %s", name, f.Unreadable["class/"+name])
		}
		for i := range class.Spec.Config {
			layers = append(layers, layer{"DeviceClass " + name, v1alpha1.FromClass, &class.Spec.Config[i].DeviceConfiguration})
		}
	}
	for i := range object.Spec.Devices.Config {
		c := &object.Spec.Devices.Config[i]
		if f.concerns(c.Requests, request) {
			layers = append(layers, layer{written, v1alpha1.FromClaim, &c.DeviceConfiguration})
		}
	}
	return layers, ""
}

// concerns reports whether a configuration for the listed requests applies to this request.
func (f *Facts) concerns(listed []string, request string) bool {
	return len(listed) == 0 || request == "" || slices.ContainsFunc(listed, func(of string) bool { return isRequest(of, request) })
}

// classes returns the classes of a request, or of all requests for "".
func classes(object *resourceapi.ResourceClaim, request string) []string {
	var names []string
	for _, r := range object.Spec.Devices.Requests {
		if !isRequest(r.Name, request) {
			continue
		}
		if r.Exactly != nil {
			names = append(names, r.Exactly.DeviceClassName)
		}
		for _, alternative := range r.FirstAvailable {
			names = append(names, alternative.DeviceClassName)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Classes returns the DeviceClasses whose configuration applies to an unallocated claim.
func Classes(object *resourceapi.ResourceClaim) []string {
	if allocated(object) {
		return nil
	}
	return classes(object, "")
}
