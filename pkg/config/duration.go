package config

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is text such as "10s" in JSON. It is as that of Kubernetes, whose package draws in an encoder of every API object: two megabytes
// of a program that runs on every node.
type Duration struct{ time.Duration }

// MarshalJSON writes the text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads the text. A number has no unit, and is refused.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("must be a duration such as \"10s\", got %s", data)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("must be a duration such as \"10s\", got %q", text)
	}
	d.Duration = parsed
	return nil
}
