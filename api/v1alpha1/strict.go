package v1alpha1

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checkObject collects fields that do not match the struct: unknown and duplicate keys, and values of another type. Keys are
// case-sensitive, unlike the keys of the standard decoder.
func checkObject(p *problems, path string, tree object, target reflect.Type) {
	fields, names := fieldsOf(target)
	seen := map[string]bool{}
	for _, m := range tree {
		at := join(path, m.key)
		field, known := fields[m.key]
		switch {
		case seen[m.key]:
			p.add(path, "duplicate field %s", quote(m.key))
		case !known:
			p.add(path, "unknown field %s; valid fields: %s", quote(m.key), strings.Join(names, ", "))
		default:
			checkValue(p, at, m.value, field)
		}
		seen[m.key] = true
	}
}

// structs caches the fields of the structs of this package by type: each Prepare decodes parameters, and finding the fields takes longer
// than everything else in it.
var structs sync.Map

// fieldsOf maps the keys of a struct to their types and lists the keys in the order of the fields, including inlined structs. Callers must
// not change either.
func fieldsOf(target reflect.Type) (map[string]reflect.Type, []string) {
	type fieldList struct {
		types map[string]reflect.Type
		names []string
	}
	if known, ok := structs.Load(target); ok {
		return known.(fieldList).types, known.(fieldList).names
	}
	types, names := readFields(target)
	structs.Store(target, fieldList{types, names})
	return types, names
}

func readFields(target reflect.Type) (map[string]reflect.Type, []string) {
	fields := map[string]reflect.Type{}
	var names []string
	for _, field := range reflect.VisibleFields(target) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous || name == "" || name == "-" {
			continue
		}
		fields[name] = field.Type
		names = append(names, name)
	}
	return fields, names
}

var (
	quantityType = reflect.TypeFor[resource.Quantity]()
	durationType = reflect.TypeFor[metav1.Duration]()
)

// checkValue collects values that do not match the type. null is the same as absent.
func checkValue(p *problems, path string, value any, target reflect.Type) {
	if target.Kind() == reflect.Pointer {
		target = target.Elem()
	}
	if value == nil || target.Kind() == reflect.Interface {
		return
	}
	switch {
	case target == quantityType:
		checkQuantity(p, path, value)
	case target == durationType:
		checkParsed(p, path, value, &metav1.Duration{}, `a duration such as "90s"`)
	case target.Kind() == reflect.Struct:
		checkStruct(p, path, value, target)
	case target.Kind() == reflect.Slice:
		checkSlice(p, path, value, target.Elem())
	case target.Kind() == reflect.Map:
		checkMap(p, path, value, target.Elem())
	default:
		checkScalar(p, path, value, target)
	}
}

func checkStruct(p *problems, path string, value any, target reflect.Type) {
	tree, ok := value.(object)
	if !ok {
		p.add(path, "must be an object, got %s", describe(value))
		return
	}
	checkObject(p, path, tree, target)
}

func checkSlice(p *problems, path string, value any, element reflect.Type) {
	items, ok := value.([]any)
	if !ok {
		p.add(path, "must be an array, got %s", describe(value))
		return
	}
	for i, item := range items {
		if item == nil {
			p.add(index(path, i), "must not be null")
			continue
		}
		checkValue(p, index(path, i), item, element)
	}
}

func checkMap(p *problems, path string, value any, element reflect.Type) {
	tree, ok := value.(object)
	if !ok {
		p.add(path, "must be an object, got %s", describe(value))
		return
	}
	seen := map[string]bool{}
	for _, m := range tree {
		at := fmt.Sprintf("%s[%s]", path, m.key)
		switch {
		case seen[m.key]:
			p.add(path, "duplicate key %s", quote(m.key))
		case m.value == nil:
			p.add(at, "must not be null")
		default:
			checkValue(p, at, m.value, element)
		}
		seen[m.key] = true
	}
}

// quantityForm excludes exponents: the library takes minutes for 1e-2147483647.
var quantityForm = regexp.MustCompile(`^[0-9]{1,15}(\.[0-9]{1,9})?([kMGTPE]i?|Ki)?$`)

func checkQuantity(p *problems, path string, value any) {
	const required = `a quantity such as "8Gi"`
	if text := fmt.Sprint(value); !quantityForm.MatchString(text) {
		p.add(path, "must be %s, got %s", required, describe(value))
		return
	}
	checkParsed(p, path, value, &resource.Quantity{}, required)
}

// checkParsed checks types with their own text format.
func checkParsed(p *problems, path string, value any, into json.Unmarshaler, required string) {
	raw, err := json.Marshal(plainValue(value))
	if err == nil {
		err = into.UnmarshalJSON(raw)
	}
	if err != nil {
		p.add(path, "must be %s, got %s", required, describe(value))
	}
}

func checkScalar(p *problems, path string, value any, target reflect.Type) {
	fits, required := false, ""
	switch target.Kind() {
	case reflect.String:
		_, fits = value.(string)
		required = "a string"
	case reflect.Bool:
		_, fits = value.(bool)
		required = "a boolean"
	default:
		fits = isWhole(value, target)
		required = "an integer"
	}
	if !fits {
		p.add(path, "must be %s, got %s", required, describe(value))
	}
}

// isWhole reports whether the value is a number in the range of the integer type.
func isWhole(value any, target reflect.Type) bool {
	number, ok := value.(json.Number)
	if !ok {
		return false
	}
	return json.Unmarshal([]byte(number), reflect.New(target).Interface()) == nil
}

// describe names the type of a value and, if it is short, the value.
func describe(value any) string {
	switch value := value.(type) {
	case object:
		return "an object"
	case []any:
		return "an array"
	case string:
		return "string " + quote(value)
	case nil:
		return "an empty document"
	case bool:
		return fmt.Sprintf("boolean %t", value)
	default:
		return fmt.Sprintf("number %v", value)
	}
}
