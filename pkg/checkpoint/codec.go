package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
)

// schema is the newest version of the record format that this plugin reads. A new key that older versions may ignore does not change the
// number; the number rises if an older version must not act on a record. A record without extensions is identical in both versions, and is
// written in the first.
const (
	firstSchema = 1
	schema      = 2 // extensions
)

// schemaOf is the oldest format that can represent the record.
func schemaOf(r *Record) int {
	if len(r.ExtensionKinds()) == 0 {
		return firstSchema
	}
	return schema
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the first line of a record file; it shows whether the rest is complete. Its keys stay in every schema, and so do the claim and,
// in the results, gpuUUID and admin: an older version must recognize a complete record, and which claim owns which GPU.
type header struct {
	Schema int    `json:"schema"`
	CRC32C string `json:"crc32c"`
	Len    int    `json:"len"`
}

// ErrDamaged means that the bytes are not a record in its written form.
var ErrDamaged = errors.New("record is damaged")

// Encode returns the bytes of a record file. It returns a *NewerError for a record on which only a newer version may act.
func Encode(r *Record) ([]byte, error) { return padded(r, 0) }

// padded is Encode with spaces after the record, so that the file is at least that many bytes long.
func padded(r *Record, least int) ([]byte, error) {
	if form := r.newForm(); form != "" {
		return nil, fmt.Errorf("encoding record of claim %s: %w", r.Claim.UID, &NewerError{Record: r, form: form})
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding record of claim %s: %w", r.Claim.UID, err)
	}
	body = append(body, bytes.Repeat([]byte(" "), max(0, least-len(body)))...)
	written := schemaOf(r)
	head, err := json.Marshal(header{Schema: written, CRC32C: checksum(written, body), Len: len(body)})
	if err != nil {
		return nil, fmt.Errorf("encoding header of record of claim %s: %w", r.Claim.UID, err)
	}
	return bytes.Join([][]byte{head, body, nil}, []byte("\n")), nil
}

// Decode parses the bytes of a record file. Its errors wrap ErrDamaged, or are a *NewerError.
func Decode(data []byte) (*Record, error) {
	h, body, err := open(data)
	if err != nil {
		return nil, err
	}
	var r Record
	if h.Schema > schema {
		r.newSchema = h.Schema
	}
	if err := json.Unmarshal(body, &r); err != nil {
		if r.newSchema > 0 {
			return nil, newer(h.Schema, body)
		}
		return nil, fmt.Errorf("%w: body: %w", ErrDamaged, err)
	}
	if r.Claim.UID == "" {
		return nil, fmt.Errorf("%w: no claim UID", ErrDamaged)
	}
	if form := r.newForm(); form != "" {
		return nil, &NewerError{Record: &r, form: form}
	}
	if len(r.CDI.Devices) != len(r.Results) {
		return nil, fmt.Errorf("%w: %d CDI devices for %d results", ErrDamaged, len(r.CDI.Devices), len(r.Results))
	}
	return &r, nil
}

// open returns the header and the body of a complete record file.
func open(data []byte) (h header, body []byte, err error) {
	line, body, found := bytes.Cut(data, []byte("\n"))
	if !found {
		return h, nil, fmt.Errorf("%w: no header line in %d bytes", ErrDamaged, len(data))
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return h, nil, fmt.Errorf("%w: header: %w", ErrDamaged, err)
	}
	if h.Schema < 1 {
		return h, nil, fmt.Errorf("%w: invalid schema %d in header", ErrDamaged, h.Schema)
	}
	body = bytes.TrimSuffix(body, []byte("\n"))
	if len(body) != h.Len {
		return h, nil, fmt.Errorf("%w: body contains %d of %d bytes", ErrDamaged, len(body), h.Len)
	}
	if sum := checksum(h.Schema, body); sum != h.CRC32C {
		return h, nil, fmt.Errorf("%w: checksum mismatch: got %s, want %s", ErrDamaged, sum, h.CRC32C)
	}
	return h, body, nil
}

// checksum covers the body and, after schema 1, the schema before it: a flipped bit in the number must not turn a record into one of
// another schema.
func checksum(schema int, body []byte) string {
	var sum uint32
	if schema > 1 {
		sum = crc32.Checksum([]byte(strconv.Itoa(schema)+"\n"), castagnoli)
	}
	return fmt.Sprintf("%08x", crc32.Update(sum, castagnoli, body))
}
