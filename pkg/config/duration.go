package config

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is text such as "10s" in JSON, as in Kubernetes, whose package would add two megabytes, an encoder of every API object, to a
// program that runs on every node.
type Duration struct{ time.Duration }

// MarshalJSON writes the text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads the text. It refuses numbers, which lack a unit.
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
