package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"
	"strings"
)

// schema is the version of the record format that this plugin writes. A newer one is read as far as it is known.
const schema = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the first line of a record file; it tells whether the rest arrived whole.
type header struct {
	Schema int    `json:"schema"`
	CRC32C string `json:"crc32c"`
	Len    int    `json:"len"`
}

// ErrDamaged says that the bytes are not a record as it was written.
var ErrDamaged = errors.New("record is damaged")

// Encode returns the bytes of a record file.
func Encode(r *Record) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding record of claim %s: %w", r.Claim.UID, err)
	}
	head, err := json.Marshal(header{Schema: schema, CRC32C: checksum(body), Len: len(body)})
	if err != nil {
		return nil, fmt.Errorf("encoding header of record of claim %s: %w", r.Claim.UID, err)
	}
	return bytes.Join([][]byte{head, body, nil}, []byte("\n")), nil
}

// Decode reads the bytes of a record file; its errors wrap ErrDamaged.
func Decode(data []byte) (*Record, error) {
	line, body, found := bytes.Cut(data, []byte("\n"))
	if !found {
		return nil, fmt.Errorf("%w: no header line in %d bytes", ErrDamaged, len(data))
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrDamaged, err)
	}
	if h.Schema < 1 {
		return nil, fmt.Errorf("%w: header names schema %d", ErrDamaged, h.Schema)
	}
	body = bytes.TrimSuffix(body, []byte("\n"))
	if len(body) != h.Len {
		return nil, fmt.Errorf("%w: body has %d of %d bytes", ErrDamaged, len(body), h.Len)
	}
	if sum := checksum(body); sum != h.CRC32C {
		return nil, fmt.Errorf("%w: checksum is %s, header says %s", ErrDamaged, sum, h.CRC32C)
	}
	var r Record
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("%w: body: %w", ErrDamaged, err)
	}
	if r.Claim.UID == "" {
		return nil, fmt.Errorf("%w: no claim UID", ErrDamaged)
	}
	if len(r.CDI.Devices) != len(r.Results) {
		return nil, fmt.Errorf("%w: %d CDI devices for %d results", ErrDamaged, len(r.CDI.Devices), len(r.Results))
	}
	return &r, nil
}

func checksum(body []byte) string { return fmt.Sprintf("%08x", crc32.Checksum(body, castagnoli)) }

// unknownKeys are the members of a JSON object that this version has no field for.
type unknownKeys map[string]json.RawMessage

// The alias types carry the fields without the methods, so that encoding/json does not call itself.
type (
	recordFields Record
	resultFields Result
	stepFields   Step
	cdiFields    CDI
)

// UnmarshalJSON keeps the keys it does not know.
func (r *Record) UnmarshalJSON(data []byte) (err error) {
	r.unknown, err = decode(data, (*recordFields)(r))
	return err
}

// MarshalJSON writes the unknown keys back.
func (r *Record) MarshalJSON() ([]byte, error) { return encode((*recordFields)(r), r.unknown) }

// UnmarshalJSON keeps the keys it does not know.
func (r *Result) UnmarshalJSON(data []byte) (err error) {
	r.unknown, err = decode(data, (*resultFields)(r))
	return err
}

// MarshalJSON writes the unknown keys back.
func (r Result) MarshalJSON() ([]byte, error) { return encode((*resultFields)(&r), r.unknown) }

// UnmarshalJSON keeps the keys it does not know.
func (s *Step) UnmarshalJSON(data []byte) (err error) {
	s.unknown, err = decode(data, (*stepFields)(s))
	return err
}

// MarshalJSON writes the unknown keys back.
func (s Step) MarshalJSON() ([]byte, error) { return encode((*stepFields)(&s), s.unknown) }

// UnmarshalJSON keeps the keys it does not know.
func (c *CDI) UnmarshalJSON(data []byte) (err error) {
	c.unknown, err = decode(data, (*cdiFields)(c))
	return err
}

// MarshalJSON writes the unknown keys back.
func (c CDI) MarshalJSON() ([]byte, error) { return encode((*cdiFields)(&c), c.unknown) }

// decode fills the struct behind fields and returns the members it has no field for, nil when there are none.
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
		delete(members, name)
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
