package main

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// defaults are the values that the defaulting code of the kind sets if all objects are present, by path of the field.
func (k kind) defaults() map[string]string {
	object := k.new()
	present(reflect.ValueOf(object).Elem())
	object.Default()
	values := map[string]string{}
	readValues(reflect.ValueOf(object).Elem(), "", values)
	return values
}

// present sets every object below a struct, and adds one item to each list of objects.
func present(of reflect.Value) {
	for i := range of.NumField() {
		f := of.Field(i)
		switch {
		case f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.Struct && !scalar(f.Type().Elem()):
			f.Set(reflect.New(f.Type().Elem()))
			present(f.Elem())
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
			present(f.Index(0))
		}
	}
}

// readValues collects the set fields of a struct.
func readValues(of reflect.Value, at string, values map[string]string) {
	for i := range of.NumField() {
		declared := of.Type().Field(i)
		key, _, _ := strings.Cut(declared.Tag.Get("json"), ",")
		if declared.Anonymous || key == "" || key == "-" {
			continue
		}
		f := of.Field(i)
		if f.Kind() == reflect.Pointer {
			if f.IsNil() {
				continue
			}
			f = f.Elem()
		}
		switch {
		case f.Kind() == reflect.Struct && !scalar(f.Type()):
			readValues(f, at+key+".", values)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			readValues(f.Index(0), at+key+"[].", values)
		case f.Kind() == reflect.Slice && f.IsNil(), f.Kind() == reflect.Map:
		default:
			values[at+key] = written(f.Interface())
		}
	}
}

// written is a default as a document has it.
func written(value any) string {
	switch value := value.(type) {
	case resource.Quantity:
		return value.String()
	case metav1.Duration:
		text := value.Duration.String()
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
		return text
	case string:
		if value == "" {
			return `""`
		}
	}
	if of := reflect.ValueOf(value); of.Kind() == reflect.Slice {
		return strings.ReplaceAll(fmt.Sprint(value), " ", ", ")
	}
	return fmt.Sprint(value)
}

// defaultSentence matches the sentence about the default in a comment.
var defaultSentence = regexp.MustCompile(`\s*Default: (.+?)\.(?:\s|$)`)

// withoutDefault removes that sentence from a comment, because it is in a column of its own.
func withoutDefault(doc string) string {
	return strings.TrimSpace(defaultSentence.ReplaceAllString(doc, " "))
}

// defaultIn is the default in a comment, empty for none.
func defaultIn(doc string) string {
	found := defaultSentence.FindStringSubmatch(doc)
	if found == nil {
		return ""
	}
	return found[1]
}
