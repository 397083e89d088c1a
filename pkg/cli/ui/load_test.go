package ui

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// TestLoad_PictureBeforeLoadsAreRead_ReadAtOnce: a cluster without changes draws no other picture.
func TestLoad_PictureBeforeLoadsAreRead_ReadAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		read := 0
		p := &pictures{hub: newHub(), from: Source{Loads: func(context.Context, *clusterview.Cluster) (map[string]Load, error) {
			read++
			cancel()
			return nil, nil
		}}}
		require.NoError(t, p.draw(&clusterview.Cluster{}, nil))
		p.load(ctx)
		assert.Equal(t, 1, read)
	})
}
