package nodeconfig

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

// keysOf lists the keys of a file's struct and of the structs in it.
func keysOf(target reflect.Type) []string {
	for target.Kind() == reflect.Pointer || target.Kind() == reflect.Slice {
		target = target.Elem()
	}
	if target.Kind() != reflect.Struct {
		return nil
	}
	var keys []string
	for _, field := range reflect.VisibleFields(target) {
		keys = append(keys, field.Tag.Get("json"))
		keys = append(keys, keysOf(field.Type)...)
	}
	return keys
}

// Every key is used in a golden file, and documented.
func TestKeys_DevicePlugin_Documented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/node-config.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(doc), "\n## The device plugin's file\n")
	require.True(t, found)
	table = strings.ReplaceAll(table, "`flags.gfd.*`", "gfd oneshot noTimestamp sleepInterval outputFile machineTypeFile")
	files, err := filepath.Glob("testdata/deviceplugin/*.yaml")
	require.NoError(t, err)
	var examples strings.Builder
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		examples.Write(raw)
	}
	keys := keysOf(reflect.TypeFor[devicePluginFile]())
	require.Greater(t, len(keys), 40)
	for _, key := range keys {
		assert.Contains(t, table, key)
		if key != "defaultChannelStrategy" { // another spelling of channelIDs
			assert.Contains(t, examples.String(), key+":")
		}
	}
}

// FuzzDevicePlugin checks that whatever is translated is a NodeConfig without fault: all that can be wrong is found in the file.
func FuzzDevicePlugin(f *testing.F) {
	files, err := filepath.Glob("testdata/deviceplugin/*.yaml")
	require.NoError(f, err)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !forDevicePlugin(raw) {
			return
		}
		config, _, err := decodeDevicePlugin(raw)
		if err != nil {
			require.ErrorAs(t, err, new(*v1alpha1.Problems))
			return
		}
		config.Flags.NVIDIADriverRoot = nil // the one value that is left to Validate, under the same path
		config.Default()
		require.NoError(t, config.Validate())
	})
}
