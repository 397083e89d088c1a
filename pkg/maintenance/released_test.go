package maintenance_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/maintenance"
)

var now = time.Date(2026, 11, 29, 6, 0, 0, 0, time.UTC)

func TestReleased_Encoded_ReadAgain(t *testing.T) {
	t.Parallel()
	file := maintenance.NewReleased(now.Add(1500 * time.Millisecond)).Encode()
	assert.JSONEq(t, `{"version":1,"until":"2026-11-29T06:00:01Z"}`, string(file))
	read, err := maintenance.DecodeReleased(file)
	require.NoError(t, err)
	assert.Equal(t, now.Add(time.Second), read.Until)
}

func TestDecodeReleased_Damaged_Error(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                 "reading released.json: unexpected end of JSON input",
		`{"version":2,"until":"soon"}`:     "cannot parse",
		`{"version":2}`:                    "unsupported version 2; supported values: 1",
		`{"until":"2026-11-29T06:00:01Z"}`: "unsupported version 0",
	} {
		_, err := maintenance.DecodeReleased([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
}

func TestReleased_At_UntilThen(t *testing.T) {
	t.Parallel()
	r := maintenance.NewReleased(now)
	assert.True(t, r.At(now.Add(-time.Second)))
	assert.False(t, r.At(now))
	assert.False(t, r.At(now.Add(time.Second)))
	assert.True(t, r.At(now.Add(-maintenance.ReleaseMax)))
	assert.False(t, r.At(now.Add(-maintenance.ReleaseMax-time.Second)), "the clock was set back")
	assert.False(t, maintenance.Released{}.At(now))
}
