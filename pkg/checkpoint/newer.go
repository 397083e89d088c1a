package checkpoint

import (
	"encoding/json"
	"fmt"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// NewerError means that a record is complete and that only a newer version of the plugin may act on it. The plugin neither answers from
// such a record, nor undoes, overwrites or renames it: it waits for that version.
type NewerError struct {
	// Record is the part that this version can read: its claim and the GPUs that the claim owns. Nil if not even that can be read.
	Record *Record
	// form is the unknown part of its form.
	form string
}

// Error names the version that wrote the record, and the fix.
func (e *NewerError) Error() string {
	writer := "a newer version of the plugin"
	if e.Record != nil && e.Record.Writer != "" {
		writer = "version " + e.Record.Writer + " of the plugin"
	}
	return fmt.Sprintf("%s prepared the claim, and this version does not know %s of its record: run that version, or a later one, "+
		"on this node again", writer, e.form)
}

// Newer reports whether only a newer version of the plugin may act on the record.
func (r *Record) Newer() bool { return r.newForm() != "" }

// newForm names the unknown part of the record's form, empty if all is known.
func (r *Record) newForm() string {
	if r.newSchema > 0 {
		return fmt.Sprintf("schema %d", r.newSchema)
	}
	switch r.State {
	case Intent, Done, Releasing:
		return ""
	default:
		return fmt.Sprintf("state %q", r.State)
	}
}

// newer reads the keys of a record that keep their form in every schema.
func newer(schema int, body []byte) *NewerError {
	var kept struct {
		Claim   Claim `json:"claim"`
		Results []struct {
			GPUUUID gpu.UUID `json:"gpuUUID"`
			Admin   bool     `json:"admin"`
		} `json:"results"`
	}
	r := &Record{newSchema: schema}
	if err := json.Unmarshal(body, &kept); err != nil || kept.Claim.UID == "" {
		return &NewerError{form: r.newForm()}
	}
	r.Claim = kept.Claim
	for _, result := range kept.Results {
		r.Results = append(r.Results, Result{GPUUUID: result.GPUUUID, Admin: result.Admin})
	}
	return &NewerError{Record: r, form: r.newForm()}
}
