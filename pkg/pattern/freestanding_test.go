package pattern

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNative_SharedLibrary_NeedsNoSymbolAndNoRelocation: the header is part of a library that is loaded into every process before the
// process's own libraries, so it must not need them, or relocations.
func TestNative_SharedLibrary_NeedsNoSymbolAndNoRelocation(t *testing.T) {
	folder := t.TempDir()
	source := filepath.Join(folder, "library.c")
	match, err := filepath.Abs(header)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(source, []byte(`#include "`+match+`"
int selects(const void *file, unsigned long size, int argc, char **argv, const char *exe) { return prism_match(file, size, argc, argv, exe); }
`), 0o600))
	compilers := []string{"gcc"}
	if compiler := os.Getenv("PATTERN_ARM64_CC"); compiler != "" {
		compilers = append(compilers, compiler)
	}
	for _, compiler := range compilers {
		for _, level := range []string{"-O0", "-O1", "-O2", "-O3", "-Os"} {
			library := filepath.Join(folder, "library.so")
			compile(t, append(strings.Fields(compiler), level, "-fPIC", "-shared", "-nostdlib", "-Wl,--no-undefined", "-o", library, source)...)
			requireFreestanding(t, library, compiler+level)
		}
	}
}

func requireFreestanding(t *testing.T, library, about string) {
	t.Helper()
	file, err := elf.Open(library)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	imported, err := file.ImportedSymbols()
	require.NoError(t, err)
	require.Empty(t, imported, about)
	for _, section := range file.Sections {
		if section.Type == elf.SHT_REL || section.Type == elf.SHT_RELA { //nolint:misspell // the name of the type
			require.Zero(t, section.Size, "%s: %s", about, section.Name)
		}
		if section.Name == ".data" || section.Name == ".bss" {
			require.Zero(t, section.Size, "%s: %s", about, section.Name)
		}
	}
}
