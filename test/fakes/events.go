package fakes

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Events takes Events of the node, each as "<type> <reason> <action>: <note>".
type Events chan string

// Warn takes an Event of type Warning.
func (e Events) Warn(reason, action, note string) {
	e <- "Warning " + reason + " " + action + ": " + note
}

// Normal takes an Event of type Normal.
func (e Events) Normal(reason, action, note string) {
	e <- "Normal " + reason + " " + action + ": " + note
}

// Written lists the Events since it was called last.
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

// Run runs something until stop is called, which returns when it has ended and fails the test for an error.
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
