package v1alpha1

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MergeProfiler lays the fields that override sets over the fields of base, as Merge does: fields of match and output one by one, lists as
// a whole. An empty text resets the value of base. captureRange resets fields without effect: First resets maxRanges, Repeat resets
// duration. MergeProfiler is associative: fields of lower layers that base resets are 0 in the result, and Default unsets them.
func MergeProfiler(base, override *ProfilerConfig, from Source) (*ProfilerConfig, error) {
	if override != nil && from != FromClass {
		var of *ClaimOverride
		if base != nil {
			of = base.ClaimOverride
		}
		if err := checkOverride(KindProfilerConfig, of, override.ClaimOverride, fieldsSet(override), from); err != nil {
			return nil, err
		}
	}
	merged := &ProfilerConfig{}
	for _, layer := range []*ProfilerConfig{base, override} {
		if layer != nil {
			merged.changeCaptureRange(layer.CaptureRange)
			layFields(reflect.ValueOf(merged).Elem(), reflect.ValueOf(layer).Elem())
		}
	}
	return merged, nil
}

// changeCaptureRange unsets the fields of c that have no effect with the captureRange of the layer above. It keeps the fields that the
// captureRange of c unset.
func (c *ProfilerConfig) changeCaptureRange(to *CaptureRange) {
	switch {
	case to == nil || c.CaptureRange == nil:
	case *c.CaptureRange == CaptureRangeRepeat:
		fill(&c.Duration, metav1.Duration{})
	default:
		fill(&c.MaxRanges, 0)
	}
	switch {
	case to == nil:
	case *to == CaptureRangeRepeat:
		c.Duration = nil
	default:
		c.MaxRanges = nil
	}
}

func fieldsSet(c *ProfilerConfig) []string {
	var fields []string
	of := reflect.ValueOf(c).Elem()
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Type().Field(i).Tag.Get("json"), ",")
		if name != "" && name != "claimOverride" && !of.Field(i).IsNil() {
			fields = append(fields, name)
		}
	}
	return fields
}

// layFields overwrites the fields of a struct of the API with copies of the fields that another struct sets. Structs without quantities and
// durations are merged field by field, everything else as a whole.
func layFields(into, from reflect.Value) {
	for i := range from.NumField() {
		field, target := from.Field(i), into.Field(i)
		switch {
		case field.IsZero():
		case field.Kind() == reflect.Slice:
			texts := reflect.MakeSlice(field.Type(), field.Len(), field.Len())
			reflect.Copy(texts, field)
			target.Set(texts)
		case field.Kind() == reflect.Pointer && nested(field.Type().Elem()):
			if target.IsNil() {
				target.Set(reflect.New(field.Type().Elem()))
			}
			layFields(target.Elem(), field.Elem())
		case field.Kind() == reflect.Pointer:
			value := reflect.New(field.Type().Elem())
			value.Elem().Set(field.Elem())
			if quantity, ok := value.Interface().(*resource.Quantity); ok {
				*quantity = quantity.DeepCopy()
			}
			target.Set(value)
		default:
			target.Set(field)
		}
	}
}

// nested reports whether a type is an object of the API whose fields are merged.
func nested(of reflect.Type) bool {
	return of.Kind() == reflect.Struct && !slices.Contains([]reflect.Type{quantityType, durationType}, of)
}
