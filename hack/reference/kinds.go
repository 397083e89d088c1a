package main

import (
	"path/filepath"
	"reflect"
	"strings"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

// kind is a kind of the API group with the inputs of its page.
type kind struct {
	name string
	// use describes the purpose of such an object.
	use string
	// new returns an empty object.
	new func() defaulter
	// decode is the decoder of the product.
	decode func([]byte) error
	// invalid are documents, without their header, that violate rules between fields and rules about the form. See errorsOf for other errors.
	invalid []string
}

// defaulter is an object of the API.
type defaulter interface{ Default() }

func kinds() []kind {
	opaque := func(raw []byte) error {
		_, err := v1alpha1.Decode(raw)
		return err
	}
	return []kind{
		{
			"GPUConfig", "sharing of GPUs by the processes of one claim", func() defaulter { return &v1alpha1.GPUConfig{} }, opaque,
			invalidGPUConfigs,
		},
		{
			"ProfilerConfig", "selection and settings of profiles for the processes of a claim", func() defaulter { return &v1alpha1.ProfilerConfig{} }, opaque,
			invalidProfilerConfigs,
		},
		{
			"GPUMetricsConfig", "metrics that are sampled for the GPUs of a claim", func() defaulter { return &v1alpha1.GPUMetricsConfig{} },
			opaque, invalidMetricsConfigs,
		},
		{
			"NodeConfig", "devices that the GPUs of a node are advertised as; an entry of a ConfigMap, or a file",
			func() defaulter { return &v1alpha1.NodeConfig{} }, func(raw []byte) error {
				_, err := v1alpha1.DecodeNodeConfig(raw)
				return err
			}, invalidNodeConfigs,
		},
	}
}

func (k kind) page() string   { return strings.ToLower(k.name) + ".md" }
func (k kind) schema() string { return "schema/" + strings.ToLower(k.name) + ".json" }

// header begins every document of the kind.
func (k kind) header() string {
	return "apiVersion: " + v1alpha1.APIVersion + "\nkind: " + k.name + "\n"
}

// fields are the fields of the kind, with their comments.
func (k kind) fields(root string) ([]*field, comments, error) {
	docs, err := readComments(filepath.Join(root, "api/v1alpha1"))
	if err != nil {
		return nil, nil, err
	}
	fields, err := fieldsOf(reflect.TypeOf(k.new()).Elem(), "", docs)
	return fields, docs, err
}

// markdown is the page of the kind.
func (k kind) markdown(root string) (string, error) {
	fields, docs, err := k.fields(root)
	if err != nil {
		return "", err
	}
	defaults, found := k.defaults(), k.errorsOf(fields)
	out := newText(k.name, "api/v1alpha1")
	out.para(docs[k.name])
	if k.name == v1alpha1.KindNodeConfig {
		out.para("Written as an entry of the ConfigMap with node configurations ([node-config.md](../node-config.md)) or as a file for `--node-config`.")
	} else {
		out.para("Written as `opaque.parameters` of a ResourceClaim, ResourceClaimTemplate or DeviceClass with `driver: gpu.prism.dev`. " +
			"Kinds and strategies that this version does not support yet are refused by name: [admission.md](../admission.md).")
	}
	out.para("`apiVersion: " + v1alpha1.APIVersion + "` and `kind: " + k.name + "` are required. A dash means that no default exists: the field stays " +
		"unset. The default of a field applies if its object is set. JSON Schema: [" + k.schema() + "](" + k.schema() + ").")
	out.heading("Fields")
	t := table{head: []string{"field", "type", "default", "valid values", "description"}}
	each(fields, func(f *field) {
		t.row(code(f.path), f.kind, code(defaults[f.path]), limitsOf(found[f.path]).text(), withoutDefault(f.doc))
	})
	out.table(t)
	out.heading("Validation errors")
	out.para("An error begins with the path of its field. The table shows the error for one invalid value each.")
	t = table{head: []string{"field", "error"}}
	each(fields, func(f *field) {
		for _, text := range found[f.path] {
			t.row(code(f.path), code(text))
		}
	})
	out.table(t)
	out.para("Errors of every field of a type:")
	t = table{head: []string{"error"}}
	for _, text := range k.generalErrors(fields) {
		t.row(code(text))
	}
	out.table(t)
	return out.String(), nil
}
