package fakes

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Events receives Events of the node, each as "<type> <reason> <action>: <note>".
type Events chan string

// Warn receives an Event of type Warning.
func (e Events) Warn(reason, action, note string) {
	e <- "Warning " + reason + " " + action + ": " + note
}

// Normal receives an Event of type Normal.
func (e Events) Normal(reason, action, note string) {
	e <- "Normal " + reason + " " + action + ": " + note
}

// Written returns the Events since its last call.
func (e Events) Written() (notes []string) {
	for {
		select {
		case note := <-e:
			notes = append(notes, note)
		default:
			return notes
		}
	}
}

// Run calls run until stop is called. stop returns when run has returned, and fails the test if run returned an error.
func Run(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return func() {
		cancel()
		require.NoError(t, <-ended)
	}
}
