package walls

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// measured are the packages whose structs are limited.
var measured = []string{"pkg/plugin/driver", "pkg/plugin/layout", "pkg/plugin/layout/configsource", "pkg/plugin/ownership", "pkg/plugin", "pkg/plugin/programs", "pkg/plugin/prepare", "pkg/plugin/prepare/gc"}

// free are the structs without a limit: the adapters and the options of a package.
var free = map[string]bool{"pkg/plugin.Adapters": true, "pkg/plugin/prepare.Options": true}

// larger are structs that were larger than the limit when it was introduced, with their sizes. They may only become smaller.
var larger = map[string]Size{}

func TestStructs_OfTheCore_AreSmall(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, of := range measured {
		sizes, err := structs(filepath.Join("..", "..", of))
		require.NoError(t, err)
		for name, size := range sizes {
			name = of + "." + name
			found[name] = true
			if free[name] {
				continue
			}
			if was, exception := larger[name]; exception {
				assert.Equal(t, was, size, "%s must not grow; if it became smaller, correct the list", name)
				assert.False(t, was.fits(), "%s is small enough: remove it from the list", name)
				continue
			}
			assert.True(t, size.fits(), "split %s: %d fields and %d methods, the limits are %d and %d", name, size.Fields, size.Methods,
				maxFields, maxMethods)
		}
	}
	for name := range larger {
		assert.True(t, found[name], "%s is gone: remove it from the list", name)
	}
	for name := range free {
		assert.True(t, found[name], "%s is gone: remove it from the list", name)
	}
}

func TestStructs_FieldsAndMethods_Counted(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"a.go":      "package a\ntype Embedded struct{}\ntype T struct {\n\tEmbedded\n\tx, y int\n}\nfunc (T) One() {}\ntype N int\nfunc (N) Of() {}\n",
		"b.go":      "package a\nfunc (t *T) Two() {}\nfunc three() {}\ntype G[E any] struct{ e E }\nfunc (G[E]) Of() {}\n",
		"a_test.go": "package a\nfunc (t *T) Three() {}\ntype Test struct{}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	sizes, err := structs(folder)
	require.NoError(t, err)
	assert.Equal(t, map[string]Size{"Embedded": {}, "T": {Fields: 3, Methods: 2}, "G": {Fields: 1, Methods: 1}}, sizes)
	_, err = structs(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.True(t, Size{maxFields, maxMethods}.fits())
	assert.False(t, Size{maxFields + 1, 0}.fits())
	assert.False(t, Size{0, maxMethods + 1}.fits())
}
