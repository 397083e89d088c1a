package bundle

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/abi"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

func built(t *testing.T, driver model.DriverVersion) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc, to build libnvidia-ml")
	}
	cache, err := CacheDir()
	require.NoError(t, err)
	dir, err := Ensure(t.Context(), cache, driver)
	require.NoError(t, err)
	return dir
}

func exported(t *testing.T, path string) map[string]bool {
	t.Helper()
	file, err := elf.Open(path)
	require.NoError(t, err)
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	require.NoError(t, err)
	names := map[string]bool{}
	for _, symbol := range symbols {
		if symbol.Section != elf.SHN_UNDEF {
			names[symbol.Name] = true
		}
	}
	return names
}

// A library exports exactly the functions of its driver version.
func TestLibrary_DriverVersion_ExactSymbols(t *testing.T) {
	for _, driver := range []model.DriverVersion{"450.248.02", "535.183.01", model.DefaultDriver} {
		t.Run(driver.String(), func(t *testing.T) {
			names := exported(t, filepath.Join(built(t, driver), LibDir, "libnvidia-ml.so."+driver.String()))
			for _, symbol := range abi.Symbols() {
				want := symbol.Place != abi.Hidden && symbol.In(driver)
				assert.Equal(t, want, names[symbol.Name], "%s in driver %s", symbol.Name, driver)
				delete(names, symbol.Name)
			}
			assert.Empty(t, names, "more is exported than the table has")
		})
	}
}

func TestLibraries_Soname_Set(t *testing.T) {
	dir := built(t, model.DefaultDriver)
	for _, library := range Libraries(model.DefaultDriver) {
		file, err := elf.Open(filepath.Join(dir, LibDir, library.File(model.DefaultDriver)))
		require.NoError(t, err)
		names, err := file.DynString(elf.DT_SONAME)
		require.NoError(t, err)
		assert.Equal(t, []string{library.Soname}, names)
		require.NoError(t, file.Close())
	}
}

// The tools run in containers that contain only libc.
func TestPrograms_Dependencies_OnlyLibc(t *testing.T) {
	dir := built(t, model.DefaultDriver)
	for _, program := range []string{
		"bin/nvidia-smi", "bin/nvidia-cuda-mps-control", "bin/nvidia-cuda-mps-server", "tool/" + GPUMem, "tool/" + GPULoad, "lib/libcuda.so.580.95.05",
	} {
		file, err := elf.Open(filepath.Join(dir, program))
		require.NoError(t, err)
		needed, err := file.ImportedLibraries()
		require.NoError(t, err)
		assert.Equal(t, []string{"libc.so.6"}, needed, program)
		require.NoError(t, file.Close())
	}
}

func TestContentKey_DriverVersion_Differs(t *testing.T) {
	first, err := contentKey("580.95.05")
	require.NoError(t, err)
	second, err := contentKey("535.183.01")
	require.NoError(t, err)
	assert.NotEqual(t, first, second)
}
