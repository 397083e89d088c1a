package validation_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/validation"
)

// fake is a CUDA driver with one device.
type fake struct {
	uuid          string
	init, context error
	hangs         chan struct{}
	used          int
}

func (f *fake) Init() (string, error) { return "13.0", f.init }

func (f *fake) Devices() ([]validation.Device, error) {
	return []validation.Device{{UUID: f.uuid, Name: "H100"}}, nil
}

func (f *fake) Context(int, uint64) error {
	if f.hangs != nil {
		<-f.hangs
	}
	f.used++
	return f.context
}

const uuid = "5d3f61a2-0000-1111-2222-333333333333"

// container returns the root directory of a container with files.
func container(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return root
}

var deviceNodes = map[string]string{"dev/nvidia0": "", "dev/nvidiactl": "", "dev/nvidia-uvm": "", "dev/nvidia-caps/nvidia-cap3": ""}

func run(root string, cuda *fake, uuids ...string) (lines []string, result *validation.Result) {
	result = validation.Run(validation.Options{
		CUDA: cuda, Root: root, UUIDs: uuids, Timeout: time.Minute, Report: func(c validation.Check) { lines = append(lines, c.String()) },
	})
	return lines, result
}

func TestRun_UsableGPU_AllChecks(t *testing.T) {
	t.Parallel()
	cuda := &fake{uuid: uuid}
	lines, result := run(container(t, deviceNodes), cuda, "GPU-"+uuid)
	assert.Equal(t, []string{
		"device nodes: ok: /dev/nvidia0 /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia-caps/nvidia-cap3", "cuInit: ok: CUDA 13.0",
		"GPUs: ok: " + uuid + " (H100)", "memory: ok: 16 MiB allocated and freed on each device",
	}, lines)
	assert.Nil(t, result.Failed())
	assert.Equal(t, 1, cuda.used)
	text, err := json.Marshal(result)
	require.NoError(t, err)
	parsed, err := validation.ParseResult(string(text))
	require.NoError(t, err)
	assert.Equal(t, result, parsed)
}

func TestRun_Failures_LastLineSaysWhatToChange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		cuda  fake
		want  string
	}{
		"no CDI":      {nil, fake{}, "device nodes: the container has no device node of a GPU: turn CDI on in the configuration of the container runtime, and restart the runtime"},
		"no GPU node": {map[string]string{"dev/nvidiactl": ""}, fake{}, "device nodes: the container has no device node of a GPU: turn CDI on in the configuration of the container runtime, and restart the runtime"},
		"cuInit":      {deviceNodes, fake{init: errors.New("cuInit returned 803")}, "cuInit: cuInit returned 803"},
		"other GPU": {deviceNodes, fake{uuid: "aaaaaaaa"}, "GPUs: CUDA does not see GPU-" + uuid + " of the claim; CUDA sees aaaaaaaa, not of the claim: check that " +
			"no other component adds GPUs to containers, such as NVIDIA's device plugin"},
		"memory": {deviceNodes, fake{uuid: uuid, context: errors.New("cuMemAlloc_v2 returned 2")}, "memory: cuMemAlloc_v2 returned 2"},
	} {
		lines, result := run(container(t, c.files), &c.cuda, "GPU-"+uuid)
		assert.Equal(t, c.want, lines[len(lines)-1], name)
		assert.Equal(t, c.want, result.Failed().String(), name)
	}
}

func TestRun_DriverHangs_EndsAfterTheDeadline(t *testing.T) {
	root := container(t, deviceNodes)
	synctest.Test(t, func(t *testing.T) {
		cuda := &fake{uuid: uuid, hangs: make(chan struct{})}
		lines, _ := run(root, cuda)
		assert.Equal(t, "memory: no answer of the driver within 1m0s: the GPU hangs; reset it, or restart the node", lines[len(lines)-1])
		close(cuda.hangs)
	})
}

// TestRun_DeviceMetadata_ComparedWithout: without arguments the UUIDs of the claim are in the container.
func TestRun_DeviceMetadata_ComparedWithout(t *testing.T) {
	t.Parallel()
	const file = "var/run/kubernetes.io/dra-device-attributes/resourceclaims/c/gpu/gpu.prism.dev-metadata.json"
	text := `{"requests": [{"devices": [{"attributes": {"uuid": {"string": "MIG-` + uuid + `"}, "index": {"int": 0}}}]}]}` + "\n{}\n"
	root := container(t, map[string]string{"dev/nvidia0": "", file: text})
	_, result := run(root, &fake{uuid: uuid})
	assert.Nil(t, result.Failed())
	_, result = run(root, &fake{uuid: "aaaaaaaa"})
	require.NotNil(t, result.Failed())
	assert.Contains(t, result.Failed().Failed, "CUDA does not see MIG-"+uuid)
}

// TestRun_DeviceNodeDenied_Fails: a node of another container, or with another mode.
func TestRun_DeviceNodeDenied_Fails(t *testing.T) {
	t.Parallel()
	root := container(t, nil)
	require.NoError(t, os.MkdirAll(filepath.Join(root, "dev/nvidia0"), 0o755)) // a folder cannot be opened for writing
	lines, _ := run(root, &fake{})
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0], "is a directory: correct the mode of the device node on the host")
}
