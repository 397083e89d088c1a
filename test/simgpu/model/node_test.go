package model

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newNode(t *testing.T, board string, count int) *Node {
	t.Helper()
	node, err := New(Uniform("node-a", board, count))
	require.NoError(t, err)
	return node
}

// open starts a session that sees the minors, or all GPUs when none is named.
func open(t *testing.T, node *Node, minors ...int) *Session {
	t.Helper()
	if len(minors) == 0 {
		for _, id := range node.Identities() {
			minors = append(minors, id.Minor)
		}
	}
	session, err := node.Open("", minors)
	require.NoError(t, err)
	return session
}

func TestNew_EqualSpecs_EqualNodes(t *testing.T) {
	first, second := newNode(t, "h100-80", 8), newNode(t, "h100-80", 8)
	if diff := cmp.Diff(first.Identities(), second.Identities()); diff != "" {
		t.Fatalf("identities differ:\n%s", diff)
	}
	other, err := New(Uniform("node-b", "h100-80", 8))
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, id := range append(first.Identities(), other.Identities()...) {
		assert.Regexp(t, `^GPU-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, id.UUID)
		assert.False(t, seen[id.UUID], "UUID %s twice", id.UUID)
		seen[id.UUID] = true
	}
}

func TestNew_MaxGPUs_UniqueAddresses(t *testing.T) {
	node := newNode(t, "t4", MaxGPUs)
	seen := map[string]bool{}
	for _, id := range node.Identities() {
		assert.False(t, seen[id.PCI.String()], "address %s twice", id.PCI)
		seen[id.PCI.String()] = true
	}
}

func TestNew_InvalidSpec_Refused(t *testing.T) {
	tests := map[string]struct {
		spec Spec
		want string
	}{
		"no name":        {Spec{}, "the name is empty"},
		"unknown board":  {Uniform("n", "h900", 1), `finding board "h900": the catalog has a100-40`},
		"too many":       {Uniform("n", "t4", 33), "33 GPUs, at most 32"},
		"old driver":     {Spec{Name: "n", Driver: "535.183.01", Boards: []string{"b200-180"}}, "NVIDIA B200 needs driver 570 or later"},
		"ancient driver": {Spec{Name: "n", Driver: "390.10"}, "the oldest simulated branch is 450"},
		"bad driver":     {Spec{Name: "n", Driver: "latest"}, `reading driver version "latest"`},
		"minor twice":    {Spec{Name: "n", Boards: []string{"t4", "t4"}, Minors: []int{1, 1}}, "minor 1 is repeated"},
		"few minors":     {Spec{Name: "n", Boards: []string{"t4", "t4"}, Minors: []int{1}}, "1 minors for 2 GPUs"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := New(test.spec)
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestParseDriverVersion_Versions_ParsedOrRefused(t *testing.T) {
	tests := []struct {
		version DriverVersion
		cuda    int
		nvml    string
	}{
		{"580.95.05", 13000, "13.580.95.05"},
		{"550.54.15", 12040, "12.550.54.15"},
		{"535.183.01", 12020, "12.535.183.01"},
		{"540.1", 12020, "12.540.1"},
	}
	for _, test := range tests {
		t.Run(test.version.String(), func(t *testing.T) {
			assert.Equal(t, test.cuda, test.version.CUDA())
			assert.Equal(t, test.nvml, test.version.NVML())
		})
	}
}

func TestSession_DeviceNodes_DecideVisibleGPUs(t *testing.T) {
	node, err := New(Spec{Name: "n", Boards: []string{"t4", "t4", "t4"}, Minors: []int{2, 0, 1}})
	require.NoError(t, err)
	session := open(t, node, 0, 2)

	count, err := session.Count()
	require.NoError(t, err)
	require.Equal(t, 2, count)
	second, err := session.ByIndex(1)
	require.NoError(t, err)
	_, id, err := session.Device(second)
	require.NoError(t, err)
	assert.Equal(t, 0, id.Minor, "index 1 is the second in PCI order")

	hidden := node.Identities()[2]
	_, err = session.ByUUID(hidden.UUID)
	require.ErrorIs(t, err, NotFound)
	_, err = session.ByPCI(hidden.PCI.Long())
	require.ErrorIs(t, err, NotFound)
	_, err = session.ComputeMode(handleOf(hidden.Ordinal))
	require.ErrorIs(t, err, InvalidArgument)
	_, err = session.ByIndex(2)
	require.ErrorIs(t, err, InvalidArgument)
}

func TestSession_Lookups_SameHandle(t *testing.T) {
	node := newNode(t, "a100-40", 2)
	session := open(t, node)
	want, err := session.ByIndex(1)
	require.NoError(t, err)
	id := node.Identities()[1]
	for name, find := range map[string]func() (Handle, error){
		"uuid":      func() (Handle, error) { return session.ByUUID(id.UUID) },
		"serial":    func() (Handle, error) { return session.BySerial(id.Serial) },
		"pci":       func() (Handle, error) { return session.ByPCI(id.PCI.String()) },
		"long pci":  func() (Handle, error) { return session.ByPCI(id.PCI.Long()) },
		"short pci": func() (Handle, error) { return session.ByPCI(id.PCI.Short()) },
	} {
		got, err := find()
		require.NoError(t, err, name)
		assert.Equal(t, want, got, name)
	}
	assert.Equal(t, 1, want.Ordinal())
	assert.Equal(t, -1, Handle(7).Ordinal())
}

func TestSettings_NonRootOrReload_RefusedOrReset(t *testing.T) {
	node := newNode(t, "h100-80", 1)
	session := open(t, node)
	gpu, err := session.ByIndex(0)
	require.NoError(t, err)

	require.ErrorIs(t, session.SetComputeMode(gpu, ComputeExclusiveProcess, false), NoPermission)
	require.ErrorIs(t, session.SetComputeMode(gpu, 1, true), InvalidArgument)
	require.NoError(t, session.SetComputeMode(gpu, ComputeExclusiveProcess, true))
	require.ErrorIs(t, session.SetTimeSlice(gpu, 4, true), InvalidArgument)
	require.NoError(t, session.SetTimeSlice(gpu, MaxTimeSlice, true))
	require.NoError(t, session.SetPersistence(gpu, true, true))

	node.Unload()
	_, err = session.ComputeMode(gpu)
	require.ErrorIs(t, err, DriverNotLoaded)
	_, err = node.Open("", []int{0})
	require.ErrorIs(t, err, DriverNotLoaded)

	require.NoError(t, node.Load(DefaultDriver))
	_, err = session.ComputeMode(gpu)
	require.ErrorIs(t, err, DriverNotLoaded, "a session does not outlive its driver")
	again := node.Snapshot().GPUs[0]
	assert.Equal(t, ComputeDefault, again.ComputeMode)
	assert.Equal(t, TimeSlice(0), again.TimeSlice)
	assert.False(t, again.Persistence)
}

func TestOpen_OtherLibraryVersion_Refused(t *testing.T) {
	node := newNode(t, "t4", 1)
	_, err := node.Open("535.183.01", []int{0})
	require.ErrorIs(t, err, LibRMVersionMismatch)
	require.ErrorContains(t, node.Load("535.183.01"), "driver 580.95.05 is loaded, unload it first")
	node.Unload()
	require.NoError(t, node.Load("535.183.01"))
	_, err = node.Open("535.183.01", []int{0})
	require.NoError(t, err)
	assert.Equal(t, DriverVersion("535.183.01"), node.Spec().Driver)
}

func TestMemory_Boards_SumsToTotal(t *testing.T) {
	for _, id := range BoardIDs() {
		session := open(t, newNode(t, id, 1))
		gpu, err := session.ByIndex(0)
		require.NoError(t, err)
		use, err := session.Memory(gpu)
		require.NoError(t, err)
		assert.Equal(t, use.Total, use.Reserved+use.Used+use.Free, id)
		assert.NotZero(t, use.Free, id)
	}
}

func TestMIGMode_BoardWithoutMIG_NotSupported(t *testing.T) {
	for board, want := range map[string]error{"t4": NotSupported, "l40s": NotSupported, "a30": nil, "h100-80": nil} {
		session := open(t, newNode(t, board, 1))
		gpu, err := session.ByIndex(0)
		require.NoError(t, err)
		_, _, err = session.MIGMode(gpu)
		assert.Equal(t, want, err, board)
	}
}

func TestCalls_Processes_CountedSeparately(t *testing.T) {
	calls := NewCalls()
	calls.Add(10, "plugin", "nvmlInit_v2")
	calls.Add(10, "plugin", "nvmlDeviceGetUUID")
	calls.Add(10, "plugin", "nvmlDeviceGetUUID")
	calls.Add(11, "smi", "nvmlInit_v2")
	want := map[string]uint64{"nvmlInit_v2": 1, "nvmlDeviceGetUUID": 2}
	if diff := cmp.Diff(want, calls.Of(10).Counts); diff != "" {
		t.Fatalf("counts of process 10:\n%s", diff)
	}
	calls.Add(11, "other", "nvmlShutdown")
	assert.Equal(t, uint64(1), calls.Of(11).Total, "another program took the pid")
	assert.Zero(t, calls.Of(12).Total)
}

func TestCalls_TooManyProcesses_LeastRecentDropped(t *testing.T) {
	calls := NewCalls()
	for pid := range maxProcesses {
		calls.Add(pid+1, "p", "c")
	}
	calls.Add(1, "p", "c")
	calls.Add(maxProcesses+1, "p", "c")
	assert.Len(t, calls.List(), maxProcesses)
	assert.Equal(t, uint64(2), calls.Of(1).Total)
	assert.Zero(t, calls.Of(2).Total)
}

func TestParseReturn_NumberOrText_Parsed(t *testing.T) {
	for text, want := range map[string]Return{"15": GPUIsLost, "GPU is lost": GPUIsLost, "999": Unknown} {
		got, err := ParseReturn(text)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, bad := range []string{"", "12345", "lost"} {
		_, err := ParseReturn(bad)
		require.Error(t, err, bad)
	}
	assert.Equal(t, "Unknown Error", Return(4711).Error())
}

func TestSnapshot_LostGPU_Shown(t *testing.T) {
	node := newNode(t, "b200-180", 2)
	id, err := node.LoseGPU(1, time.Time{})
	require.NoError(t, err)
	snapshot := node.Snapshot()
	assert.Equal(t, []bool{false, true}, []bool{snapshot.GPUs[0].Lost, snapshot.GPUs[1].Lost})
	assert.Equal(t, []int{id}, []int{snapshot.Faults[0].ID})
	assert.Equal(t, "pci0000:15", snapshot.GPUs[0].PCIeRoot)
	assert.Equal(t, "0000:1b:00.0", snapshot.GPUs[0].PCI)
	assert.Equal(t, fmt.Sprint(13000), fmt.Sprint(snapshot.Driver.CUDA))
}
