package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Extensions contains the data of extensions for a claim or a result, by the kind of the extension. The data is in the extension's own
// format: unknown parts are kept as they were written.
type Extensions map[string]json.RawMessage

// Set encodes the data of an extension. The error names the extension.
func (e *Extensions) Set(kind string, data any) error {
	raw, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encoding the data of extension %s: %w", kind, err)
	}
	if *e == nil {
		*e = Extensions{}
	}
	(*e)[kind] = raw
	return nil
}

// Has reports whether the data of an extension is present.
func (e Extensions) Has(kind string) bool { return len(e[kind]) > 0 }

// ExtensionOf decodes the data of an extension; nil without data.
func ExtensionOf[T any](e Extensions, kind string) (*T, error) {
	if !e.Has(kind) {
		return nil, nil
	}
	data := new(T)
	if err := json.Unmarshal(e[kind], data); err != nil {
		return nil, fmt.Errorf("reading the data of extension %s: %w", kind, err)
	}
	return data, nil
}

// Extended reports whether the record or one of its results contains data of an extension.
func (r *Record) Extended(kind string) bool {
	return r.Extensions.Has(kind) || slices.ContainsFunc(r.Results, func(result Result) bool { return result.Extensions.Has(kind) })
}

// ExtensionKinds lists the extensions with data in the record or in its results, in order.
func (r *Record) ExtensionKinds() []string {
	kinds := map[string]bool{}
	for kind := range r.Extensions {
		kinds[kind] = true
	}
	for i := range r.Results {
		for kind := range r.Results[i].Extensions {
			kinds[kind] = true
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

// kindMPS is the kind of the extension of results that are used with MPS.
const kindMPS = "mps"

// ThroughServer reports whether processes use the device through a server process, as MPS clients do.
func (r *Result) ThroughServer() bool { return r.Type == gpu.TypeMPS || r.Extensions.Has(kindMPS) }

// Members of schema 1 whose data belongs to extensions now, with the extensions' kinds.
var (
	formerOfRecord = map[string]string{"profile": "profile"}
	formerOfResult = map[string]string{"mps": kindMPS, "metrics": "metrics", "profiled": "profile"}
)

// adopt moves members of schema 1 from the unknown keys to the extensions. A member that is true becomes an empty object. If data of the
// extension is present, the member is not one of schema 1, and stays unknown.
func (e *Extensions) adopt(unknown unknownKeys, former map[string]string) unknownKeys {
	for member, kind := range former {
		raw, found := unknown[member]
		if !found || e.Has(kind) {
			continue
		}
		delete(unknown, member)
		switch string(raw) {
		case "null", "false":
			continue
		case "true":
			raw = json.RawMessage("{}")
		}
		if *e == nil {
			*e = Extensions{}
		}
		(*e)[kind] = raw
	}
	if len(unknown) == 0 {
		return nil
	}
	return unknown
}
