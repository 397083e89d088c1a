package mps

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestMark_Result_UseByMPS: prism-hook distinguishes a GPU that is used with MPS from one that is not.
func TestMark_Result_UseByMPS(t *testing.T) {
	t.Parallel()
	client := checkpoint.Extensions{claim.KindMPS: []byte(`{"daemon":"a"}`)}
	for _, c := range []struct {
		result checkpoint.Result
		want   string
	}{
		{checkpoint.Result{Type: gpu.TypeGPU}, ""},
		{checkpoint.Result{Type: gpu.TypeGPU, Extensions: client}, "+mps"},
		{checkpoint.Result{Type: gpu.TypeMIG, Extensions: client}, "+mps"},
		{checkpoint.Result{Type: gpu.TypeMPS, Extensions: client}, ""},
	} {
		assert.Equal(t, c.want, (&Extension{}).Mark(&c.result), c.result.Type)
	}
}
