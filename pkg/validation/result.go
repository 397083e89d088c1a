package validation

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Check is one check and its result.
type Check struct {
	Name string `json:"name"`
	// Failed is the failure and its remedy in one sentence; empty if the check is successful.
	Failed string `json:"failed,omitempty"`
	// Found describes the result of a successful check.
	Found string `json:"found,omitempty"`
}

// String is a line: "memory: ok: 16 MiB allocated and freed".
func (c Check) String() string {
	switch {
	case c.Failed != "":
		return c.Name + ": " + c.Failed
	case c.Found != "":
		return c.Name + ": ok: " + c.Found
	}
	return c.Name + ": ok"
}

// Result is the result of all checks. The program writes it to the termination message of its container.
type Result struct {
	Checks []Check `json:"checks"`
	// UUIDs are the UUIDs of the devices that CUDA sees, without "GPU-" and "MIG-".
	UUIDs []string `json:"uuids,omitempty"`
}

// Failed returns the failed check; nil if all are successful.
func (r *Result) Failed() *Check {
	for i := range r.Checks {
		if r.Checks[i].Failed != "" {
			return &r.Checks[i]
		}
	}
	return nil
}

// ParseResult reads the termination message of a container.
func ParseResult(message string) (*Result, error) {
	result := &Result{}
	if err := json.Unmarshal([]byte(message), result); err != nil {
		return nil, fmt.Errorf("the program wrote no result: %w", err)
	}
	return result, nil
}

// Bare returns a UUID without "GPU-" and "MIG-", in lower case: CUDA reports UUIDs without them.
func Bare(uuid string) string {
	uuid = strings.ToLower(uuid)
	for _, prefix := range []string{"gpu-", "mig-"} {
		uuid = strings.TrimPrefix(uuid, prefix)
	}
	return uuid
}

// Different describes the difference between the UUIDs of a claim and the UUIDs that CUDA sees; "" if there is none.
func Different(claim, seen []string) string {
	var missing, extra []string
	has := func(list []string, uuid string) bool {
		for _, other := range list {
			if Bare(other) == Bare(uuid) {
				return true
			}
		}
		return false
	}
	for _, uuid := range claim {
		if !has(seen, uuid) {
			missing = append(missing, uuid)
		}
	}
	for _, uuid := range seen {
		if !has(claim, uuid) {
			extra = append(extra, uuid)
		}
	}
	var parts []string
	if len(missing) > 0 {
		parts = append(parts, "CUDA does not see "+strings.Join(missing, ", ")+" of the claim")
	}
	if len(extra) > 0 {
		parts = append(parts, "CUDA sees "+strings.Join(extra, ", ")+", not of the claim")
	}
	return strings.Join(parts, "; ")
}
