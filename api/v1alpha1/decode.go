package v1alpha1

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
)

const (
	// MaxConfigBytes is the maximum size of an opaque configuration, the same as the API server's limit for parameters of a claim or class.
	MaxConfigBytes = 10 << 10
	// MaxNodeConfigBytes is the maximum size of a NodeConfig.
	MaxNodeConfigBytes = 256 << 10
)

// Decode reads one opaque configuration in JSON or YAML, at most
// MaxConfigBytes. Unknown kinds, fields and API versions, values of a wrong
// type, duplicate keys and values that Validate refuses are errors; the error
// is a *Problems with all of them. Defaults are not filled in.
func Decode(raw []byte) (Config, error) { return Decoder{}.Decode(raw) }

// Decoder reads opaque configuration.
type Decoder struct {
	// More returns an empty object for each kind that is not defined in this package.
	More map[string]func() Config
	// BesideNVIDIA is set if DecodeNVIDIA reads configuration too, so that errors list the API versions and kinds of both.
	BesideNVIDIA bool
}

// Decode does the same as the function Decode, with further kinds.
func (d Decoder) Decode(raw []byte) (Config, error) {
	tree, err := parse(raw, MaxConfigBytes)
	if err != nil {
		return nil, err
	}
	configs := map[string]Config{
		KindGPUConfig:        &GPUConfig{},
		KindProfilerConfig:   &ProfilerConfig{},
		KindGPUMetricsConfig: &GPUMetricsConfig{},
	}
	for kind, empty := range d.More {
		configs[kind] = empty()
	}
	var others []string
	if d.BesideNVIDIA {
		others = nvidiaKinds
	}
	kind, err := headerOf(tree, APIVersion, slices.Sorted(maps.Keys(configs)), others...)
	if err != nil {
		return nil, err
	}
	config := configs[kind]
	if err := fit(tree, kind, config); err != nil {
		return nil, err
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return config, nil
}

// DecodeNodeConfig reads one NodeConfig as Decode reads opaque configuration,
// at most MaxNodeConfigBytes.
func DecodeNodeConfig(raw []byte) (*NodeConfig, error) {
	tree, err := parse(raw, MaxNodeConfigBytes)
	if err != nil {
		return nil, err
	}
	if _, err := headerOf(tree, APIVersion, []string{KindNodeConfig}); err != nil {
		return nil, err
	}
	config := &NodeConfig{}
	if err := fit(tree, KindNodeConfig, config); err != nil {
		return nil, err
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return config, nil
}

// DecodeForeign reads one document of another format into the struct that into points to. It is as strict as DecodeNodeConfig and allows
// the same size. Keys are the json tags of the fields of the struct. Fields of type any take every value. kind is the name of the document
// in errors; they are *Problems.
func DecodeForeign(raw []byte, kind string, into any) error {
	tree, err := parse(raw, MaxNodeConfigBytes)
	if err != nil {
		return err
	}
	return fit(tree, kind, into)
}

// headerOf returns the kind of the object if it is one of these kinds of the group and version. The others are kinds of NVIDIAAPIVersion
// that would be accepted too; errors list them if the object may have been meant as one.
func headerOf(tree object, group string, kinds []string, others ...string) (string, error) {
	p := &problems{}
	apiVersion := tree.text("apiVersion")
	kind := tree.text("kind")
	groups, more := group, ""
	if len(others) > 0 {
		groups += ", " + NVIDIAAPIVersion
		if apiVersion != group || slices.Contains(others, kind) {
			more = " of " + group + ", " + list(others) + " of " + NVIDIAAPIVersion
		}
	}
	if apiVersion != group {
		p.add("apiVersion", "%s; supported values: %s", unsupported(apiVersion), groups)
	}
	if !slices.Contains(kinds, kind) {
		p.add("kind", "%s; supported values: %s%s", unsupported(kind), list(kinds), more)
	}
	return kind, p.err("")
}

// unsupported describes an invalid value of the header; empty stands for a missing value or a type other than string.
func unsupported(value string) string {
	if value == "" {
		return "required and must be a string"
	}
	return "unsupported value " + quote(value)
}

// fit fills the object that into points to. It checks the fields first because the errors of the standard decoder name Go types instead of
// the user's path.
func fit(tree object, kind string, into any) error {
	p := &problems{}
	checkObject(p, "", tree, reflect.TypeOf(into).Elem())
	if err := p.err(kind); err != nil {
		return err
	}
	raw, err := json.Marshal(tree.plain())
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		p.add("", "decoding: %v", err)
	}
	return p.err(kind)
}
