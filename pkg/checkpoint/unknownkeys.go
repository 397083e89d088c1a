package checkpoint

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// unknownKeys are the members of a JSON object for which this version has no field.
type unknownKeys map[string]json.RawMessage

// The alias types contain the fields without the methods, so that encoding/json does not recurse.
type (
	recordFields  Record
	claimFields   Claim
	resultFields  Result
	stepFields    Step
	migFields     MIG
	shareFields   Share
	cdiFields     CDI
	pendingFields PendingCleanup
)

// UnmarshalJSON keeps unknown keys.
func (r *Record) UnmarshalJSON(data []byte) error {
	unknown, err := decode(data, (*recordFields)(r))
	r.unknown = r.Extensions.adopt(unknown, formerOfRecord)
	return err
}

// MarshalJSON writes unknown keys back.
func (r *Record) MarshalJSON() ([]byte, error) { return encode((*recordFields)(r), r.unknown) }

// UnmarshalJSON keeps unknown keys.
func (r *Result) UnmarshalJSON(data []byte) error {
	unknown, err := decode(data, (*resultFields)(r))
	r.unknown = r.Extensions.adopt(unknown, formerOfResult)
	return err
}

// MarshalJSON writes unknown keys back.
func (r Result) MarshalJSON() ([]byte, error) { return encode((*resultFields)(&r), r.unknown) }

// UnmarshalJSON keeps unknown keys.
func (s *Step) UnmarshalJSON(data []byte) (err error) {
	s.unknown, err = decode(data, (*stepFields)(s))
	return err
}

// MarshalJSON writes unknown keys back.
func (s Step) MarshalJSON() ([]byte, error) { return encode((*stepFields)(&s), s.unknown) }

// UnmarshalJSON keeps unknown keys.
func (m *MIG) UnmarshalJSON(data []byte) (err error) {
	m.unknown, err = decode(data, (*migFields)(m))
	return err
}

// MarshalJSON writes unknown keys back.
func (m MIG) MarshalJSON() ([]byte, error) { return encode((*migFields)(&m), m.unknown) }

// UnmarshalJSON keeps unknown keys.
func (s *Share) UnmarshalJSON(data []byte) (err error) {
	s.unknown, err = decode(data, (*shareFields)(s))
	return err
}

// MarshalJSON writes unknown keys back.
func (s Share) MarshalJSON() ([]byte, error) { return encode((*shareFields)(&s), s.unknown) }

// UnmarshalJSON keeps unknown keys.
func (c *CDI) UnmarshalJSON(data []byte) (err error) {
	c.unknown, err = decode(data, (*cdiFields)(c))
	return err
}

// MarshalJSON writes unknown keys back.
func (c CDI) MarshalJSON() ([]byte, error) { return encode((*cdiFields)(&c), c.unknown) }

// UnmarshalJSON keeps unknown keys.
func (c *Claim) UnmarshalJSON(data []byte) (err error) {
	c.unknown, err = decode(data, (*claimFields)(c))
	return err
}

// MarshalJSON writes unknown keys back.
func (c Claim) MarshalJSON() ([]byte, error) { return encode((*claimFields)(&c), c.unknown) }

// UnmarshalJSON keeps unknown keys.
func (p *PendingCleanup) UnmarshalJSON(data []byte) (err error) {
	p.unknown, err = decode(data, (*pendingFields)(p))
	return err
}

// MarshalJSON writes unknown keys back.
func (p PendingCleanup) MarshalJSON() ([]byte, error) { return encode((*pendingFields)(&p), p.unknown) }

// decode fills the struct behind fields and returns the members without a field, nil if there are none.
func decode(data []byte, fields any) (unknownKeys, error) {
	if err := json.Unmarshal(data, fields); err != nil {
		return nil, err
	}
	var members unknownKeys
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	t := reflect.TypeOf(fields).Elem()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "" {
			continue // not a member
		}
		delete(members, name)
		// The library matches keys with fields in any case. As an unknown key it would be written back, and override the field when the record is
		// read again.
		for key := range members {
			if strings.EqualFold(key, name) {
				return nil, fmt.Errorf("key %q is %q in another case", key, name)
			}
		}
	}
	if len(members) == 0 {
		return nil, nil
	}
	return members, nil
}

// encode writes the struct's fields, then the unknown members in the order of their keys.
func encode(fields any, unknown unknownKeys) ([]byte, error) {
	known, err := json.Marshal(fields)
	if err != nil || len(unknown) == 0 {
		return known, err
	}
	rest, err := json.Marshal(map[string]json.RawMessage(unknown))
	if err != nil {
		return nil, err
	}
	return append(append(known[:len(known)-1], ','), rest[1:]...), nil
}
