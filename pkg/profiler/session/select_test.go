package session

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// whole is a session with a value for each selectable property.
var whole = Session{
	ID: "1a2b3c4d-w7-0123456789abcdef", Namespace: "team", Claim: "train", ClaimUID: "1a2b3c4d-uid", Pod: "p", Container: "main", Node: "n0", Process: "python3",
	State: Waiting,
}

func TestSession_LabelsAndFields_EachPropertyOnce(t *testing.T) {
	t.Parallel()
	assert.Equal(t, map[string]string{
		"gpu.prism.dev/claim": "train", "gpu.prism.dev/pod": "p", "gpu.prism.dev/container": "main", "gpu.prism.dev/node": "n0",
	}, whole.Labels())
	assert.Equal(t, map[string]string{
		"metadata.name": whole.ID, "metadata.namespace": "team", "spec.claim": "train", "spec.claimUID": "1a2b3c4d-uid", "spec.pod": "p",
		"spec.container": "main", "spec.node": "n0", "spec.process": "python3", "status.state": "Waiting",
	}, whole.Fields())
	assert.Equal(t, map[string]string{"gpu.prism.dev/claim": "c"}, Session{Claim: "c", Pod: strings.Repeat("p", 64), Container: "a b"}.Labels(),
		"values that are not valid in labels are omitted")
}

func TestSelection_Compile_SelectsByAllRequirements(t *testing.T) {
	t.Parallel()
	for selection, want := range map[Selection]bool{
		{}: true,
		{Labels: "gpu.prism.dev/claim in (train,other),gpu.prism.dev/pod"}:      true,
		{Labels: "!gpu.prism.dev/pod"}:                                          false,
		{Fields: "spec.process=python3,status.state!=Recording"}:                true,
		{Fields: "status.state=Recording"}:                                      false,
		{Labels: "gpu.prism.dev/node=n0", Fields: "metadata.namespace!=team"}:   false,
		{Labels: "gpu.prism.dev/node=n1", Fields: "metadata.namespace=team"}:    false,
		{Labels: "gpu.prism.dev/node=n0", Fields: "metadata.name=" + whole.ID}:  true,
		{Labels: "gpu.prism.dev/node=n0", Fields: "spec.claimUID=1a2b3c4d-uid"}: true,
	} {
		selects, err := selection.Compile()
		require.NoError(t, err, selection)
		assert.Equal(t, want, selects(whole), selection)
	}
	for selection, says := range map[Selection]string{
		{Labels: "a=b=c"}: "labelSelector: ", {Fields: "!"}: "fieldSelector: ", {Fields: "metadata.uid=x"}: "fieldSelector: metadata.uid is not supported",
	} {
		_, err := selection.Compile()
		require.ErrorContains(t, err, says)
	}
}

func TestSelection_Exact_OnlyOneValue(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"spec.node=n0": "n0", "spec.node!=n0": "", "": "", "spec.pod=p,spec.node=n1": "n1", "!": ""} {
		assert.Equal(t, want, Selection{Fields: text}.Exact("spec.node"), text)
	}
}
