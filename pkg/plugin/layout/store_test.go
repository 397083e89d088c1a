package layout

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

func TestFile_Saved_LoadedAgain(t *testing.T) {
	t.Parallel()
	file := File{Disk: disk.OS{}, Dir: t.TempDir()}
	saved, err := file.Load()
	require.NoError(t, err)
	assert.Equal(t, Saved{}, saved)
	layout := gpu.Layout{firstUUID: {Whole: true, MIG: []string{"1g.10gb"}}, "GPU-b": {Static: true}}
	for _, want := range []Saved{
		{GPUs: layout, Flags: &v1alpha1.NodeFlags{GDSEnabled: new(true), NVIDIADriverRoot: new("/run/nvidia/driver")}},
		{GPUs: layout},
	} {
		require.NoError(t, file.Save(want))
		saved, err = file.Load()
		require.NoError(t, err)
		assert.Equal(t, want, saved)
		assert.True(t, saved.same(want))
	}
	require.NoError(t, os.WriteFile(filepath.Join(file.Dir, fileName), []byte(`{"version":1,"gpus":{"GPU-b":{"Static":true}}}`), 0o600))
	saved, err = file.Load()
	require.NoError(t, err)
	assert.Equal(t, Saved{GPUs: gpu.Layout{"GPU-b": {Static: true}}}, saved, "as it was written without flags")
	half := filepath.Join(file.Dir, "layout.json.tmp")
	require.NoError(t, os.WriteFile(half, []byte("{"), 0o600))
	require.NoError(t, file.Sweep())
	require.NoFileExists(t, half)
	require.NoError(t, file.Sweep())
	require.ErrorContains(t, File{Disk: disk.OS{}, Dir: file.Dir + "/none"}.Save(saved), "saving the advertised kinds of GPUs: ")
}

// TestStore_RestartWithInvalidConfiguration_FlagsKept, and so is the limit of shares per request.
func TestStore_RestartWithInvalidConfiguration_FlagsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lenient = `[{modes: [timeslice], timeSlice: {replicas: 3}, failRequestsGreaterThanOne: false}]`
		oneShare := func(d *fixture) bool { return d.now().Layout[firstUUID].OneShare }
		d := opened(t, strings.Replace(lenient, "false", "true", 1))
		stop := d.runs(t)
		after(2 * retryFirst)
		assert.False(t, *d.now().Flags.GDSEnabled)
		assert.True(t, oneShare(d))
		d.entries = lenient
		d.Reload()
		after(time.Minute)
		assert.False(t, oneShare(d))
		assert.False(t, d.saved.layout[firstUUID].OneShare)
		d.entries = lenient + "\nflags: {gdsEnabled: true}"
		d.Reload()
		after(time.Minute)
		flags := d.now().Flags
		assert.True(t, *flags.GDSEnabled)
		assert.Equal(t, flags, d.saved.flags)

		stop()
		d.restart(t)
		d.read = errBad
		require.False(t, d.load(t))
		d.probe(t)
		assert.Equal(t, flags, d.now().Flags)
		assert.False(t, oneShare(d))
		stop = d.runs(t)
		defer stop()
		after(time.Minute)
		assert.Equal(t, flags, d.saved.flags, "it is not forgotten by the next start either")

		d.read, d.entries = nil, ""
		d.Reload()
		after(time.Minute)
		assert.Nil(t, d.now().Flags)
		assert.Nil(t, d.saved.flags, "there is no configuration any more")
	})
}
