package timeslice

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	uuidA = gpu.UUID("GPU-aaaaaaaa-0000-4000-8000-000000000000")
	uuidB = gpu.UUID("GPU-bbbbbbbb-0000-4000-8000-000000000000")
)

// tool is a fake nvidia-smi that keeps the intervals and can fail.
type tool struct {
	// mu guards the fields, which tests set and Run reads in the background.
	mu      sync.Mutex
	inForce map[gpu.UUID]gpu.Interval
	runs    int
	// refusal is the error of every run; applied: a run that fails has set the interval nevertheless.
	refusal error
	applied bool
}

func (f *tool) SetTimeslice(ctx context.Context, id gpu.UUID, interval gpu.Interval) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	f.runs++
	if f.refusal == nil || f.applied {
		f.inForce[id] = interval
	}
	return f.refusal
}

// machine is a node with a fake tool and a directory for the store.
type machine struct {
	*tool
	dir string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	return &machine{tool: &tool{inForce: map[gpu.UUID]gpu.Interval{}}, dir: t.TempDir()}
}

// store is the store of a process of that boot.
func (b *machine) store(boot string) *Store {
	return NewStore(disk.OS{}, b.dir, boot)
}

func (b *machine) step() Step {
	return Step{Tool: b.tool, Store: b.store("boot-1")}
}

// files are the names of the store's files.
func (b *machine) files(t *testing.T) []string {
	t.Helper()
	names, err := disk.OS{}.List(filepath.Join(b.dir, "intervals"))
	require.NoError(t, err)
	return names
}

func intervalStep(id gpu.UUID, interval string) checkpoint.Step {
	return checkpoint.Step{Kind: claim.StepInterval, Target: id, Args: []byte(`{"interval":"` + interval + `"}`)}
}

func TestStep_DoFindUndo_SetsAndRestoresInterval(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	_, err := b.step().Do(t.Context(), intervalStep(uuidA, "Short"))
	require.NoError(t, err)
	assert.Equal(t, map[gpu.UUID]gpu.Interval{uuidA: "Short"}, b.inForce)
	assert.Equal(t, 1, b.runs)

	found, err := b.step().Find(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []checkpoint.Step{{Kind: claim.StepInterval, Target: uuidA}}, found)
	assert.True(t, Step{}.Names(intervalStep(uuidA, "Short"), found[0]))

	require.NoError(t, b.step().Undo(t.Context(), intervalStep(uuidA, "Short")))
	assert.Equal(t, map[gpu.UUID]gpu.Interval{uuidA: "Default"}, b.inForce)
	assert.Equal(t, 2, b.runs)
	assert.Empty(t, b.files(t))

	require.NoError(t, b.step().Undo(t.Context(), intervalStep(uuidA, "Short")), "undone already")
	assert.Equal(t, 2, b.runs)
	found, err = b.step().Find(t.Context())
	require.NoError(t, err)
	assert.Empty(t, found)
}

// Find and Undo work without the claim's checkpoint: the store alone identifies the GPU.
func TestStep_ClaimNotInCheckpoint_FoundAndUndone(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	_, err := b.step().Do(t.Context(), intervalStep(uuidB, "Long"))
	require.NoError(t, err)
	found, err := b.step().Find(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.NoError(t, b.step().Undo(t.Context(), found[0]))
	assert.Equal(t, map[gpu.UUID]gpu.Interval{uuidB: "Default"}, b.inForce)
}

func TestStep_AfterReboot_NothingToUndo(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	_, err := b.step().Do(t.Context(), intervalStep(uuidA, "Long"))
	require.NoError(t, err)
	later := Step{Tool: b.tool, Store: b.store("boot-2")}
	found, err := later.Find(t.Context())
	require.NoError(t, err)
	assert.Empty(t, found)
	require.NoError(t, later.Undo(t.Context(), intervalStep(uuidA, "Long")))
	assert.Equal(t, 1, b.runs)
}

func TestStep_TruncatedFile_Ignored(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	step := b.step()
	require.NoError(t, os.Mkdir(filepath.Join(b.dir, "intervals"), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "intervals", string(uuidA)+".claim.json"), []byte(`{"bootID":"boot-1","cl`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "intervals", string(uuidB)+".claim.json.tmp"), nil, 0o600))
	require.NoError(t, step.Undo(t.Context(), intervalStep(uuidA, "Long")))
	found, err := step.Find(t.Context())
	require.NoError(t, err)
	assert.Empty(t, found)
}

// An error that proves that nothing was set leaves nothing to undo; any other error may have set the interval.
func TestStep_DoFails_UndoneUnlessRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refusal error
		runs    int // of the tool by Undo
	}{
		"not supported": {&gpu.UnsupportedError{Feature: "it"}, 0},
		"no driver":     {gpu.ErrDriverNotLoaded, 0},
		"GPU lost":      {gpu.ErrLost, 0},
		"no answer":     {gpu.ErrTimeout, 1},
		"killed":        {errors.New("signal: killed"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newMachine(t)
			b.refusal, b.applied = c.refusal, c.runs > 0
			_, err := b.step().Do(t.Context(), intervalStep(uuidA, "Long"))
			require.ErrorIs(t, err, c.refusal)
			b.refusal, b.runs = nil, 0
			require.NoError(t, b.step().Undo(t.Context(), intervalStep(uuidA, "Long")))
			assert.Equal(t, c.runs, b.runs)
			assert.NotEqual(t, gpu.IntervalLong, b.inForce[uuidA])
			assert.Empty(t, b.files(t))
		})
	}
}

func TestStep_UndoFails_RetrySucceeds(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	_, err := b.step().Do(t.Context(), intervalStep(uuidA, "Long"))
	require.NoError(t, err)
	b.refusal = gpu.ErrLost
	require.ErrorIs(t, b.step().Undo(t.Context(), intervalStep(uuidA, "Long")), gpu.ErrLost)
	b.refusal = nil
	require.NoError(t, b.step().Undo(t.Context(), intervalStep(uuidA, "Long")))
	assert.Equal(t, gpu.IntervalDefault, b.inForce[uuidA])
}

// fullDisk fails every write.
type fullDisk struct{ disk.OS }

func (fullDisk) Write(string, []byte, fs.FileMode, bool) error { return syscall.ENOSPC }

// On a full disk Undo succeeds, because it only removes a file, and Do sets nothing, because it could not be undone after a restart.
func TestStep_FullDisk_DoFailsAndUndoSucceeds(t *testing.T) {
	t.Parallel()
	k := newConfiguredNode(t)
	k.wanted = intervals("Long", "Default")
	k.newReconciler("boot-1").Reconcile(t.Context())
	_, err := k.step().Do(t.Context(), intervalStep(uuidA, "Short"))
	require.NoError(t, err)
	full := Step{Tool: k.tool, Store: NewStore(fullDisk{}, k.dir, "boot-1")}
	require.NoError(t, full.Undo(t.Context(), intervalStep(uuidA, "Short")))
	assert.Equal(t, gpu.IntervalLong, k.inForce[uuidA])
	_, err = full.Do(t.Context(), intervalStep(uuidB, "Short"))
	require.ErrorIs(t, err, syscall.ENOSPC)
	assert.NotContains(t, k.inForce, uuidB, "an interval that cannot be recorded is not set")

	_, err = k.step().Do(t.Context(), intervalStep(uuidB, "Short"))
	require.NoError(t, err)
	require.NoError(t, full.Undo(t.Context(), intervalStep(uuidB, "Short")))
	assert.Equal(t, intervals("Long", "Default"), k.inForce)
	found, err := k.step().Find(t.Context())
	require.NoError(t, err)
	assert.Empty(t, found)
}

func TestStep_InvalidArguments_Refused(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	_, err := b.step().Do(t.Context(), checkpoint.Step{Target: uuidA, Args: []byte("{")})
	require.ErrorContains(t, err, "reading the arguments of step interval")
	assert.Zero(t, b.runs)
}
