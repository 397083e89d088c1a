package cluster_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
)

// TestExplain_Interrupted_NoRequest: the user has interrupted the command, so the request does not matter.
func TestExplain_Interrupted_NoRequest(t *testing.T) {
	t.Parallel()
	err := cluster.Explain("reading node n1", "get on nodes", &url.Error{Op: "Get", URL: "https://127.0.0.1", Err: context.Canceled})
	require.EqualError(t, err, "reading node n1: interrupted")
	require.ErrorIs(t, err, context.Canceled)
}
