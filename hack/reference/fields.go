package main

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// field is one field of a kind, at its path in a document: lists with [], maps with [*].
type field struct {
	path, key string
	// kind is the type in YAML.
	kind string
	// of is the Go type, without the pointer.
	of reflect.Type
	// doc is the comment of the Go field, in which the key replaces the name of the field.
	doc string
	// children are the fields of an object, or of the objects of a list.
	children []*field
}

// fieldsOf lists the fields of an API struct. A field without a comment is an error, because the page could not describe it.
func fieldsOf(of reflect.Type, at string, docs comments) ([]*field, error) {
	var out []*field
	for i := range of.NumField() {
		f := of.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || key == "" || key == "-" {
			continue
		}
		found := &field{path: at + key, key: key, of: f.Type}
		if found.of.Kind() == reflect.Pointer {
			found.of = found.of.Elem()
		}
		found.kind = kindOf(found.of)
		comment := docs[of.Name()+"."+f.Name]
		if comment == "" {
			return nil, fmt.Errorf("field %s.%s has no doc comment", of.Name(), f.Name)
		}
		found.doc = renamed(comment, f.Name, key)
		nested, prefix := found.of, found.path+"."
		if nested.Kind() == reflect.Slice {
			nested, prefix = nested.Elem(), found.path+"[]."
		}
		if nested.Kind() == reflect.Struct && !scalar(nested) {
			var err error
			if found.children, err = fieldsOf(nested, prefix, docs); err != nil {
				return nil, err
			}
		}
		out = append(out, found)
	}
	return out, nil
}

// renamed replaces the name of the Go field in a comment with the key of the document.
func renamed(comment, name, key string) string {
	rest, found := strings.CutPrefix(comment, name+" ")
	if !found {
		return comment
	}
	for _, verb := range []string{"is ", "are "} {
		if after, ok := strings.CutPrefix(rest, verb); ok {
			return strings.ToUpper(after[:1]) + after[1:]
		}
	}
	if strings.HasPrefix(rest, "of ") {
		return comment
	}
	return code(key) + " " + rest
}

var (
	quantityType = reflect.TypeFor[resource.Quantity]()
	durationType = reflect.TypeFor[metav1.Duration]()
)

// scalar reports whether a struct is written as a string.
func scalar(of reflect.Type) bool { return of == quantityType || of == durationType }

// kindOf names a Go type in the terms of YAML.
func kindOf(of reflect.Type) string {
	switch {
	case of == quantityType:
		return "quantity"
	case of == durationType:
		return "duration"
	case of.Kind() == reflect.Slice:
		return "list of " + kindOf(of.Elem()) + "s"
	case of.Kind() == reflect.Map:
		return "map of " + kindOf(of.Elem()) + "s"
	case of.Kind() == reflect.Struct:
		return "object"
	case of.Kind() == reflect.Bool:
		return "boolean"
	case of.Kind() == reflect.Int32:
		return "integer"
	default:
		return "string"
	}
}

// each visits a field and the fields below it, in order.
func each(fields []*field, visit func(*field)) {
	for _, f := range fields {
		visit(f)
		each(f.children, visit)
	}
}
