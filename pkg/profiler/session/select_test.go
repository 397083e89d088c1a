package session

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSelects_LabelsAndFields_AsInTheAPI(t *testing.T) {
	t.Parallel()
	one := Session{
		ID: "01234567-w7-0123456789abcdef", Namespace: "team", Claim: "train", ClaimUID: "u", Pod: strings.Repeat("p", 64), Container: "main",
		Node: "n1", Process: "python3", State: Waiting,
	}
	for of, want := range map[Selection]bool{
		{}: true,
		{Labels: "gpu.prism.dev/claim=train,gpu.prism.dev/node in (n1,n2)", Fields: "status.state=Waiting,spec.process!=bash"}: true,
		{Labels: "gpu.prism.dev/claim=other"}:                                  false,
		{Fields: "status.state=Recording"}:                                     false,
		{Labels: "gpu.prism.dev/pod"}:                                          false, // not valid in a label
		{Fields: "spec.pod=" + one.Pod}:                                        true,
		{Labels: "gpu.prism.dev/container=main", Fields: "metadata.name=x"}:    false,
		{Fields: "metadata.namespace=team,metadata.name=" + one.ID}:            true,
		{Fields: "spec.claimUID=u,spec.claim=train,spec.container=main"}:       true,
		{Fields: "spec.node=n2"}:                                               false,
		{Labels: "!gpu.prism.dev/pod,gpu.prism.dev/container notin (x, main)"}: false,
	} {
		selects, err := Selects(of)
		require.NoError(t, err, of)
		assert.Equal(t, want, selects(one), of)
	}
	for _, of := range []Selection{{Labels: "a in"}, {Fields: "a"}, {Fields: "spec.other!=x"}, {Fields: "=x"}} {
		_, err := Selects(of)
		assert.Error(t, err, of)
	}
}
