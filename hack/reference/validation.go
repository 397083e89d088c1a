package main

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

// errorsOf runs the decoder on invalid documents and returns its errors by the path of the field, except errors about a wrong type. Each
// error appears once, for any value.
func (k kind) errorsOf(fields []*field) map[string][]string {
	found := map[string][]string{}
	collect := func(document string) {
		for _, problem := range k.problemsOf(document) {
			path := generic(fields, problem.Path)
			if !typeError.MatchString(problem.Text) && !slices.ContainsFunc(found[path], func(known string) bool { return shape(known) == shape(problem.Text) }) {
				found[path] = append(found[path], problem.Text)
			}
		}
	}
	each(fields, func(f *field) {
		for _, value := range invalidValues(f) {
			collect(k.header() + documentWith(f.path, value))
		}
	})
	for _, document := range k.invalid {
		collect(k.header() + document)
	}
	return found
}

// problemsOf are the errors of the decoder for a document.
func (k kind) problemsOf(document string) []*v1alpha1.Problem {
	problems := &v1alpha1.Problems{}
	if err := k.decode([]byte(document)); err == nil || !errors.As(err, &problems) {
		return nil
	}
	return problems.List
}

// typeError matches the errors that every field of a type has.
var typeError = regexp.MustCompile(`^must be (a string|a boolean|an integer|an object|an array|a quantity such as "8Gi"|a duration such as "90s"), got |^must not be null$`)

// shape removes the value from an error.
func shape(text string) string {
	before, _, _ := strings.Cut(text, ", got ")
	return quoted.ReplaceAllString(itemOrKey.ReplaceAllString(before, "[]"), `"`)
}

var quoted = regexp.MustCompile(`"[^"]*"`)

// generalErrors are the errors of a type, for the first field of each type.
func (k kind) generalErrors(fields []*field) []string {
	var texts []string
	wrong := map[string]any{"string": 1, "boolean": "on", "integer": "50", "quantity": "8 GB", "duration": "soon", "object": "x"}
	seen := map[string]bool{}
	each(fields, func(f *field) {
		value, scalar := wrong[f.kind]
		if f.of.Kind() == reflect.Slice {
			value, scalar = "x", true
		}
		if !scalar || seen[f.kind] && f.of.Kind() != reflect.Slice {
			return
		}
		seen[f.kind] = true
		for _, problem := range k.problemsOf(k.header() + documentWith(f.path, value)) {
			if !slices.Contains(texts, problem.Text) {
				texts = append(texts, problem.Text)
			}
		}
	})
	for _, document := range []string{k.header() + "x: 1\n", "{\"kind\": \"" + k.name + "\", \"kind\": \"x\", \"apiVersion\": \"" + v1alpha1.APIVersion + "\"}", "kind: x\n"} {
		for _, problem := range k.problemsOf(document) {
			texts = append(texts, problem.Error())
		}
	}
	return texts
}

// invalidValues are values of a field's type that may be invalid; the valid ones cause no error.
func invalidValues(f *field) []any {
	switch {
	case f.of == quantityType:
		return []any{"1500Ki", "1"}
	case f.of == durationType:
		return []any{"-1s", "9000h"}
	case f.of.Kind() == reflect.Int32:
		return []any{-1, 2147483647}
	case f.of.Kind() == reflect.String && f.of.Name() != "string":
		return []any{"x"}
	case f.of.Kind() == reflect.String:
		return []any{"", "../X y"}
	case f.of.Kind() == reflect.Map:
		return []any{map[string]any{"": example(f.of.Elem())}, map[string]any{"x y": example(f.of.Elem())}, many(f.of.Elem())}
	case f.of.Kind() == reflect.Slice && f.of.Elem().Kind() == reflect.Struct:
		return nil
	case f.of.Kind() == reflect.Slice:
		item := example(f.of.Elem())
		return []any{[]any{}, []any{item, item}, slices.Repeat([]any{item}, 100)}
	default:
		return nil
	}
}

// example is an item of a list or a map that is always invalid if the type has rules.
func example(of reflect.Type) any {
	if of.Kind() == reflect.Int32 {
		return -1
	}
	return "X y"
}

// many are more entries than the API allows in a map.
func many(of reflect.Type) map[string]any {
	entries := map[string]any{}
	for i := range 100 {
		entries["a"+strconv.Itoa(i)] = example(of)
	}
	return entries
}

// documentWith is a document that only contains the value at the path.
func documentWith(path string, value any) string {
	keys := strings.Split(path, ".")
	slices.Reverse(keys)
	for _, key := range keys {
		name, list := strings.CutSuffix(key, "[]")
		if list {
			value = []any{value}
		}
		value = map[string]any{name: value}
	}
	raw, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Sprintf("# %v\n", err)
	}
	return string(raw)
}

var itemOrKey = regexp.MustCompile(`\[[^\]]*\]`)

// generic is the path of the field of an error, without the index of an item or the key of a map.
func generic(fields []*field, path string) string {
	paths := map[string]bool{}
	each(fields, func(f *field) { paths[f.path] = true })
	at := itemOrKey.ReplaceAllString(path, "[]")
	for at != "" && !paths[at] {
		if end := strings.TrimSuffix(at, "[]"); end != at {
			at = end
			continue
		}
		at = at[:max(0, strings.LastIndex(at, "."))]
	}
	return at
}
