package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// shortestStep bounds the number of steps of a repeated script in a time.
const shortestStep = time.Millisecond

// Step sets quantities for a time; the others follow from the processes.
type Step struct {
	For    time.Duration        // 0: until another script
	Values map[Quantity]float64 // of an event: how many happen at the start of the step
}

// Script sets the activity of a GPU or GPU instance, step by step. After the last step the activity follows from its processes.
type Script struct {
	Steps  []Step `json:"steps"`
	Repeat bool   `json:"repeat,omitempty"`
}

// stepJSON is a step as text: {"for": "10s", "values": {"sm": 60}}.
type stepJSON struct {
	For    string             `json:"for,omitempty"`
	Values map[string]float64 `json:"values"`
}

// MarshalJSON writes a step with its quantities by name.
func (s Step) MarshalJSON() ([]byte, error) {
	text := stepJSON{Values: map[string]float64{}}
	if s.For != 0 {
		text.For = s.For.String()
	}
	for q, value := range s.Values {
		text.Values[q.String()] = value
	}
	return json.Marshal(text)
}

// UnmarshalJSON reads the output of MarshalJSON.
func (s *Step) UnmarshalJSON(data []byte) error {
	var text stepJSON
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("reading a step: %w", err)
	}
	*s = Step{Values: map[Quantity]float64{}}
	if text.For != "" {
		var err error
		if s.For, err = time.ParseDuration(text.For); err != nil {
			return fmt.Errorf("reading a step: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(text.Values)) {
		q, err := ParseQuantity(name)
		if err != nil {
			return err
		}
		s.Values[q] = text.Values[name]
	}
	return nil
}

// check refuses impossible values; ofInstance says that the script is for a GPU instance.
func (s Script) check(ofInstance bool) error {
	for i, step := range s.Steps {
		last := i == len(s.Steps)-1
		switch {
		case step.For < 0 || step.For > 0 && step.For < shortestStep:
			return fmt.Errorf("reading step %d: %s is shorter than %s", i+1, step.For, shortestStep)
		case step.For == 0 && (!last || s.Repeat):
			return fmt.Errorf("reading step %d: only the last step of a script that is not repeated can be without duration", i+1)
		}
		if err := step.check(ofInstance); err != nil {
			return fmt.Errorf("reading step %d: %w", i+1, err)
		}
	}
	return nil
}

func (s Step) check(ofInstance bool) error {
	for q, value := range s.Values {
		row := quantities[q]
		switch {
		case math.IsNaN(value) || math.IsInf(value, 0) || value < 0 || row.most != 0 && value > row.most:
			return fmt.Errorf("%s is %g: must be at least 0%s", row.name, value, upTo(row.most))
		case ofInstance && !row.instance:
			return fmt.Errorf("%s belongs to the GPU, not to a MIG device", row.name)
		}
	}
	return nil
}

func upTo(most float64) string {
	if most == 0 {
		return ""
	}
	return fmt.Sprintf(" and at most %g", most)
}

// at finds the step after a time since the start, and when it began and ends since then; no step: -1. The end is 0 for never.
func (s Script) at(since time.Duration) (step int, began, ends time.Duration) {
	var whole time.Duration
	for _, step := range s.Steps {
		whole += step.For
	}
	if len(s.Steps) == 0 || since < 0 {
		return -1, 0, 0
	}
	if s.Repeat {
		began = since / whole * whole
	}
	for i, step := range s.Steps {
		if step.For == 0 {
			return i, began, 0
		}
		if since < began+step.For {
			return i, began, began + step.For
		}
		began += step.For
	}
	return -1, began, 0
}
