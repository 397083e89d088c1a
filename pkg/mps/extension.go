package mps

import (
	"context"
	"encoding/json"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Extension marks the devices of claims that are used with MPS, whatever their type is.
type Extension struct{}

// Kind is claim.KindMPS.
func (Extension) Kind() string { return claim.KindMPS }

// Claim bounds what uses MPS.
func (Extension) Claim(context.Context) claim.Extension { return claim.MPSExtension{} }

// Mark is added to a type of device that is used with or without MPS.
func (Extension) Mark(r *checkpoint.Result) string {
	if r.Type == gpu.TypeMPS || !r.Extensions.Has(claim.KindMPS) {
		return ""
	}
	return "+" + string(gpu.TypeMPS)
}

// Exceeded says how results with these uses exceed the bounds of the step's device; empty if they do not.
func (Step) Exceeded(s checkpoint.Step, results []json.RawMessage) (string, error) {
	args, err := claim.ParseMPS(s.Args)
	if err != nil {
		return "", err
	}
	return args.Exceeded(results)
}
