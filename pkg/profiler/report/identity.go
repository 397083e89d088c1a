package report

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
)

// ErrPrecondition is returned instead of a deletion if the report is not the one, or not the version, that the caller wants to delete.
var ErrPrecondition = errors.New("precondition failed")

// Deletion selects the report to delete, and whether to delete it.
type Deletion struct {
	// UID and Version are the required values, as ObjectUID and Version return them; "" is any.
	UID, Version string
	// DryRun checks whether the report could be deleted, and keeps it.
	DryRun bool
}

// The parameters of a Deletion in requests to plugins.
const (
	uidParameter, versionParameter = "uid", "resourceVersion"
	dryRunParameter                = "deletable"
)

// Query writes a Deletion into a request: DELETE, or GET for a dry run.
func (d Deletion) Query() url.Values {
	query := url.Values{}
	if d.UID != "" {
		query.Set(uidParameter, d.UID)
	}
	if d.Version != "" {
		query.Set(versionParameter, d.Version)
	}
	if d.DryRun {
		query.Set(dryRunParameter, "true")
	}
	return query
}

// ParseDeletion parses the result of Query.
func ParseDeletion(query url.Values) Deletion {
	return Deletion{UID: query.Get(uidParameter), Version: query.Get(versionParameter), DryRun: query.Has(dryRunParameter)}
}

// Check compares a report with the preconditions; ErrPrecondition if its UID or version differs.
func (d Deletion) Check(r Report) error {
	if uid := r.ObjectUID(); d.UID != "" && d.UID != uid {
		return fmt.Errorf("%w: report %s has UID %s, the precondition wants %s; get the report again", ErrPrecondition, r.ID, uid, d.UID)
	}
	if version := r.Version(); d.Version != "" && d.Version != version {
		return fmt.Errorf("%w: report %s has resourceVersion %s, the precondition wants %s; get the report again", ErrPrecondition, r.ID, version, d.Version)
	}
	return nil
}

// ObjectUID returns the UID of the report in the API, in the form of a UUID. It is unique on all nodes: a report that is recorded later
// under the same name gets another UID.
func (r Report) ObjectUID() string {
	sum := digest([]string{r.Node, r.ClaimUID, r.ID, r.UID})
	const version, variant = 0x80, 0x80 // a UUID whose bits are application-defined
	sum[6], sum[8] = sum[6]&0x0f|version, sum[8]&0x3f|variant
	text := hex.EncodeToString(sum[:16])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// Version changes with every change of the report, and is unique among all reports. Versions are not ordered, so they are not numbers:
// clients that compare resource versions as numbers get an error, not a wrong result. The UID of the namespace is not included, because
// plugins and controllers of earlier versions do not know it.
func (r Report) Version() string {
	r.NamespaceUID = ""
	sum := digest(r)
	return "v" + hex.EncodeToString(sum[:10])
}

// digest hashes a value in the form that controllers and plugins exchange.
func digest(of any) [sha256.Size]byte {
	raw, err := json.Marshal(of)
	if err != nil { // a year of five digits: all fields still distinguish reports
		raw = fmt.Append(nil, of)
	}
	return sha256.Sum256(raw)
}
