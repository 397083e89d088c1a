package model

import (
	"errors"
	"fmt"
	"slices"
)

// MaxGPUs is the maximum number of GPUs of a node: NVML minors stay below it.
const MaxGPUs = 32

// Spec describes a node before it exists. Equal specs give equal nodes.
type Spec struct {
	Name   string        `json:"name"`   // seeds UUIDs and serial numbers
	Driver DriverVersion `json:"driver"` // DefaultDriver when empty
	Boards []string      `json:"boards"` // one board id per GPU, in PCI order
	Minors []int         `json:"minors,omitempty"`
	MIG    []int         `json:"mig,omitempty"` // GPUs of Ampere whose MIG mode is on at boot, by ordinal

	// Replaced are the GPUs in whose place another one was put, by ordinal; once for each time.
	Replaced []int `json:"replaced,omitempty"`

	SampleHold SampleHold `json:"sampleHold,omitempty"` // HoldUntilFree when empty
}

// Uniform is the spec of a node with count GPUs of one board.
func Uniform(name, board string, count int) Spec {
	return Spec{Name: name, Boards: slices.Repeat([]string{board}, max(count, 0))}
}

// normal sets defaults and refuses impossible nodes.
func (s Spec) normal() (Spec, error) {
	if s.Name == "" {
		return s, fmt.Errorf("describing a node: the name is empty, and UUIDs come from it")
	}
	if s.Driver == "" {
		s.Driver = DefaultDriver
	}
	if _, err := ParseDriverVersion(string(s.Driver)); err != nil {
		return s, fmt.Errorf("describing node %s: %w", s.Name, err)
	}
	if !s.SampleHold.valid() {
		return s, fmt.Errorf("describing node %s: samples hold a GPU instance until %q: supported values: %q, %q",
			s.Name, s.SampleHold, HoldUntilFree, HoldUntilShutdown)
	}
	s.SampleHold = s.SampleHold.normal()
	if len(s.Boards) > MaxGPUs {
		return s, fmt.Errorf("describing node %s: %d GPUs, at most %d can be simulated", s.Name, len(s.Boards), MaxGPUs)
	}
	if len(s.Minors) == 0 {
		for i := range s.Boards {
			s.Minors = append(s.Minors, i)
		}
	}
	return s, errors.Join(s.checkMinors(), s.checkMIG(), s.checkReplaced())
}

func (s Spec) checkMinors() error {
	if len(s.Minors) != len(s.Boards) {
		return fmt.Errorf("describing node %s: %d minors for %d GPUs", s.Name, len(s.Minors), len(s.Boards))
	}
	seen := map[int]bool{}
	for _, minor := range s.Minors {
		if minor < 0 || minor >= MaxGPUs || seen[minor] {
			return fmt.Errorf("describing node %s: minor %d is repeated or not in 0..%d", s.Name, minor, MaxGPUs-1)
		}
		seen[minor] = true
	}
	return nil
}

func (s Spec) checkReplaced() error {
	for _, i := range s.Replaced {
		if i < 0 || i >= len(s.Boards) {
			return fmt.Errorf("describing node %s: GPU %d was replaced, but the node has %d GPUs", s.Name, i, len(s.Boards))
		}
	}
	return nil
}

// replacements counts how often a GPU was replaced.
func (s Spec) replacements(ordinal int) (count int) {
	for _, i := range s.Replaced {
		if i == ordinal {
			count++
		}
	}
	return count
}

// checkMIG refuses MIG modes that do not survive a boot: only Ampere keeps the mode.
func (s Spec) checkMIG() error {
	for _, i := range s.MIG {
		if i < 0 || i >= len(s.Boards) {
			return fmt.Errorf("describing node %s: MIG mode of GPU %d, but the node has %d GPUs", s.Name, i, len(s.Boards))
		}
		board, err := BoardByID(s.Boards[i])
		if err != nil {
			return fmt.Errorf("describing node %s: %w", s.Name, err)
		}
		if !board.MIG.NeedsReset {
			return fmt.Errorf("describing node %s: GPU %d (%s) does not keep a MIG mode over a boot", s.Name, i, board.Product.Name)
		}
	}
	return nil
}
