// Package kubectlprism runs the command kubectl prism against a server of a test.
package kubectlprism

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/prism-gpu/prism/pkg/cli"
)

// kubeconfig has the address of the server as its only variable.
const kubeconfig = `apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {}}]
contexts: [{name: c, context: {cluster: c, user: u, namespace: team}}]
`

// Run runs a command in namespace team of the server at that address, and returns its output, its output about errors, and its error.
func Run(ctx context.Context, t testing.TB, server string, args ...string) (out, errOut string, err error) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, kubeconfig, server), 0o600))
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	command := cli.Command("test", streams)
	command.SetArgs(append(append([]string{}, args...), "--kubeconfig", config))
	err = command.ExecuteContext(ctx)
	return stdout.String(), stderr.String(), err
}
