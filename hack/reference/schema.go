package main

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

// node is a JSON Schema, limited to the features that the kinds use.
type node struct {
	Schema      string           `json:"$schema,omitempty"`
	Title       string           `json:"title,omitempty"`
	Description string           `json:"description,omitempty"`
	Type        any              `json:"type,omitempty"`
	Enum        []string         `json:"enum,omitempty"`
	Default     json.RawMessage  `json:"default,omitempty"`
	Minimum     *int             `json:"minimum,omitempty"`
	Maximum     *int             `json:"maximum,omitempty"`
	MinItems    int              `json:"minItems,omitempty"`
	MaxItems    int              `json:"maxItems,omitempty"`
	UniqueItems bool             `json:"uniqueItems,omitempty"`
	Items       *node            `json:"items,omitempty"`
	Required    []string         `json:"required,omitempty"`
	Properties  map[string]*node `json:"properties,omitempty"`
	// Additional is false, or the schema of the values of a map.
	Additional any `json:"additionalProperties,omitempty"`
}

// jsonSchema is the schema of the kind. It checks types, values and numbers; the validation checks rules between fields.
func (k kind) jsonSchema(root string) (string, error) {
	fields, docs, err := k.fields(root)
	if err != nil {
		return "", err
	}
	found, defaults := k.errorsOf(fields), k.defaults()
	top := objectSchema(fields, found, defaults)
	top.Schema, top.Title, top.Description = "https://json-schema.org/draft/2020-12/schema", k.name, docs[k.name]
	top.Required = []string{"apiVersion", "kind"}
	top.Properties["apiVersion"] = &node{Type: "string", Enum: []string{v1alpha1.APIVersion}}
	top.Properties["kind"] = &node{Type: "string", Enum: []string{k.name}}
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(top)
	return out.String(), err
}

func objectSchema(fields []*field, found map[string][]string, defaults map[string]string) *node {
	object := &node{Type: "object", Additional: false, Properties: map[string]*node{}}
	for _, f := range fields {
		s := fieldSchema(f, limitsOf(found[f.path]), found, defaults)
		s.Description = withoutDefault(f.doc)
		s.Default = defaultValue(f.of, defaults[f.path])
		object.Properties[f.key] = s
	}
	return object
}

func fieldSchema(f *field, l limits, found map[string][]string, defaults map[string]string) *node {
	switch {
	case f.of.Kind() == reflect.Struct && !scalar(f.of):
		return objectSchema(f.children, found, defaults)
	case f.of.Kind() == reflect.Slice:
		list := &node{Type: "array", UniqueItems: l.unique, MaxItems: l.items}
		if l.notEmpty {
			list.MinItems = 1
		}
		if f.children != nil {
			list.Items = objectSchema(f.children, found, defaults)
		} else {
			list.Items = valueSchema(f.of.Elem(), l)
		}
		return list
	case f.of.Kind() == reflect.Map:
		return &node{Type: "object", Additional: valueSchema(f.of.Elem(), limits{})}
	default:
		return valueSchema(f.of, l)
	}
}

func valueSchema(of reflect.Type, l limits) *node {
	switch {
	case of == quantityType:
		return &node{Type: []string{"string", "number"}}
	case of.Kind() == reflect.Bool:
		return &node{Type: "boolean"}
	case of.Kind() == reflect.Int32:
		return &node{Type: "integer", Minimum: number(l.lowest), Maximum: number(l.highest)}
	default:
		return &node{Type: "string", Enum: l.values}
	}
}

func number(text string) *int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return nil
	}
	return &n
}

// defaultValue is a default as JSON.
func defaultValue(of reflect.Type, text string) json.RawMessage {
	switch {
	case text == "":
		return nil
	case of.Kind() == reflect.Bool, of.Kind() == reflect.Int32, text == `""`:
		return json.RawMessage(text)
	case of.Kind() == reflect.Slice:
		items := strings.Split(strings.Trim(text, "[]"), ", ")
		raw, _ := json.Marshal(items)
		return raw
	default:
		raw, _ := json.Marshal(text)
		return raw
	}
}
