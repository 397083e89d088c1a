package profile

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestAsk_OneLine_YesOrNo(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, " YES \n": true, "yes": true, "n\n": false, "\n": false, "": false, "yeah\n": false} {
		streams, in, _, errOut := genericiooptions.NewTestIOStreams()
		in.WriteString(answer)
		yes, err := cluster{IOStreams: streams}.ask(t.Context(), "Start recordings of 21 sessions?")
		require.NoError(t, err)
		assert.Equal(t, want, yes, answer)
		assert.Equal(t, "Start recordings of 21 sessions? [y/N] ", errOut.String())
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	in, out := io.Pipe()
	t.Cleanup(func() { _ = out.Close() })
	_, err := cluster{IOStreams: genericiooptions.IOStreams{In: in, ErrOut: io.Discard}}.ask(ctx, "?")
	require.EqualError(t, err, "interrupted")
}

// TestProgram_FlagsOfCluster_Kept: the command to stop what began reaches the same cluster, and shows no secret.
func TestProgram_FlagsOfCluster_Kept(t *testing.T) {
	root := &cobra.Command{Use: "kubectl-prism"}
	genericclioptions.NewConfigFlags(true).AddFlags(root.PersistentFlags())
	got := ""
	root.AddCommand(&cobra.Command{Use: "start", RunE: func(command *cobra.Command, _ []string) error {
		got = program(command)
		return nil
	}})
	root.SetArgs(strings.Fields("start -n team --context prod --token=secret --as-group=a --as-group b --as ada"))
	require.NoError(t, root.Execute())
	assert.Equal(t, "kubectl prism --as=ada --as-group=a --as-group=b --context=prod", got)
}
