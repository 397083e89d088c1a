package native

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/debian"
)

// others contains other runtimes and libraries that depend on the libraries loaded before them, and musl.
var others = debian.Package{
	Name: "debian-beside-preload", Package: "libclang-rt-14-dev", With: []string{"musl", "musl-dev", "libjemalloc2", "libfaketime"}, Free: true,
}

// otherProgram is a program that is run with and without the library.
type otherProgram struct {
	// compile contains gcc's arguments for testdata/allocates.c; ROOT and RT stand for the folder of the packages, and the folder of
	// clang's runtimes.
	compile string
	// environment of the program, and the command that runs it.
	environment, with string
	// sanitized: if it matches, it runs unprofiled.
	sanitized bool
}

const clang = " -nodefaultlibs -Wl,-rpath,RT -Wl,--whole-archive "

// otherPrograms: gcc's instrumentation calls clang's runtime as well as its own.
var otherPrograms = map[string]otherProgram{
	"plain":                     {},
	"static":                    {compile: "-static"},
	"static and movable":        {compile: "-static-pie"},
	"addresses":                 {compile: "-fsanitize=address", sanitized: true},
	"addresses, static runtime": {compile: "-fsanitize=address -static-libasan", sanitized: true},
	"addresses, clang": {
		compile: "-fsanitize=address -nodefaultlibs -Wl,-rpath,RT RT/libclang_rt.asan-x86_64.so -lc -lgcc", sanitized: true,
	},
	"addresses, clang, static runtime": {
		compile: "-fsanitize=address" + clang + "RT/libclang_rt.asan-x86_64.a" +
			" -Wl,--no-whole-archive -Wl,-E -lc -lm -lgcc -lgcc_eh -lpthread -ldl -lrt -lresolv", sanitized: true,
	},
	"leaks":                   {compile: "-fsanitize=leak", sanitized: true},
	"threads":                 {compile: "-fsanitize=thread", sanitized: true},
	"threads, static runtime": {compile: "-fsanitize=thread -static-libtsan", sanitized: true},
	"undefined":               {compile: "-fsanitize=undefined"},
	"undefined, clang":        {compile: "-fsanitize=undefined -Wl,-rpath,RT RT/libclang_rt.ubsan_standalone-x86_64.so"},
	"counts calls":            {compile: "-pg"},
	"allocator":               {environment: "LD_PRELOAD=ROOT/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"},
	"another time":            {environment: "LD_PRELOAD=ROOT/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1 FAKETIME=-20y"},
	"preloads a sanitizer":    {environment: "LD_PRELOAD=SANITIZER", sanitized: true},
	"auditor":                 {environment: "LD_AUDIT=/run/work/audit.so"},
	"musl":                    {compile: musl},
	"musl, static":            {compile: "-static " + musl},
	"by the loader":           {with: "/lib64/ld-linux-x86-64.so.2"},
}

const musl = "-nostdinc -isystem ROOT/usr/include/x86_64-linux-musl -nostdlib -no-pie -LROOT/usr/lib/x86_64-linux-musl" +
	" ROOT/usr/lib/x86_64-linux-musl/crt1.o -lc -Wl,--dynamic-linker=ROOT/usr/lib/x86_64-linux-musl/libc.so"

// expand replaces the folders in the text.
func expand(t *testing.T, root, text string) []string {
	t.Helper()
	sanitizer, err := exec.Command("gcc", "-print-file-name=libasan.so").Output()
	require.NoError(t, err)
	resolved, err := filepath.EvalSymlinks(strings.TrimSpace(string(sanitizer)))
	require.NoError(t, err)
	return strings.Fields(strings.NewReplacer("SANITIZER", resolved, "RT", root+"/usr/lib/llvm-14/lib/clang/14.0.6/lib/linux", "ROOT", root).Replace(text))
}

// gcc compiles a file of testdata into the work folder.
func (c *container) gcc(t *testing.T, source, name string, arguments ...string) {
	t.Helper()
	arguments = append([]string{"-o", filepath.Join(c.Work, name), "testdata/" + source}, arguments...)
	output, err := exec.Command("gcc", arguments...).CombinedOutput()
	require.NoError(t, err, string(output))
}

// TestLibrary_OtherPrograms_AsWithout: a program runs as without the library, regardless of its environment at the start, and whether it
// matches or not.
func TestLibrary_OtherPrograms_AsWithout(t *testing.T) {
	t.Parallel()
	programs(t)
	root, err := others.Unpacked(t.Context(), !testing.Short())
	if err != nil {
		t.Skipf("Debian's packages are not available: %v", err)
	}
	for name, program := range otherPrograms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, without := newContainer(t, nil), newContainer(t, nil)
			without.NoLibrary = true
			for _, each := range []*container{c, without} {
				each.gcc(t, "allocates.c", "program", expand(t, root, program.compile)...)
				each.gcc(t, "audit.c", "audit.so", "-shared", "-fPIC")
			}
			run := func(c *container, argument string) (int, string) {
				args := append([]string{"env"}, expand(t, root, program.environment)...)
				args = append(args, expand(t, root, program.with)...)
				code, output := c.run(t, append(args, "/run/work/program", argument)...)
				return code, addresses.ReplaceAllString(output, "N")
			}
			for _, argument := range []string{"other", "profiled"} {
				code, got := run(c, argument)
				wantCode, want := run(without, argument)
				assert.Equal(t, wantCode, code, argument)
				assert.Equal(t, want, got, argument)
				if argument == "other" {
					assert.Empty(t, c.notes(t))
				}
			}
			code, output := run(without, "other")
			assert.Equal(t, 3, code, output)
			if program.sanitized {
				assert.Equal(t, "SanitizerNotSupported", c.one(t)["reason"])
			}
		})
	}
}

// addresses matches addresses and process ids.
var addresses = regexp.MustCompile(`(0x)?[0-9a-f]{4,}`)

// TestLibrary_NameAnywhereInTable_Found: the table is read in pieces, and of overlapping tables no more than the length of the file.
func TestLibrary_NameAnywhereInTable_Found(t *testing.T) {
	t.Parallel()
	programs(t)
	const piece, name = 64 << 10, "\x00__asan_init\x00"
	table := func(at int) []byte { return append(bytes.Repeat([]byte("x"), at), name...) }
	for about, is := range map[string]struct {
		tables [][]byte
		again  int // how often the file's whole content is used as a table before these
		found  bool
	}{
		"first name":       {tables: [][]byte{table(0)[1:]}, found: true},
		"end of a piece":   {tables: [][]byte{table(piece - len(name))}, found: true},
		"null in the next": {tables: [][]byte{table(piece + 1 - len(name))}, found: true},
		"half in the next": {tables: [][]byte{table(2*piece - 8)}, found: true},
		"in the next":      {tables: [][]byte{table(piece - 1)}, found: true},
		"second table":     {tables: [][]byte{table(10)[:12], table(10)}, found: true},
		"end of another":   {tables: [][]byte{append([]byte("\x00my"), name[1:]...)}},
		"longer":           {tables: [][]byte{[]byte("\x00__asan_init_v8\x00")}},
		"overlapping":      {tables: [][]byte{table(10)}, again: 2},
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			c := newContainer(t, nil)
			c.gcc(t, "allocates.c", "program", "-s")
			withTables(t, filepath.Join(c.Work, "program"), is.again, is.tables)
			code, _ := c.run(t, "/run/work/program", "profiled")
			assert.Equal(t, 3, code)
			if is.found {
				assert.Equal(t, "SanitizerNotSupported", c.one(t)["reason"])
			} else {
				assert.Equal(t, finished, c.one(t)["state"])
			}
		})
	}
}

// withTables replaces the sections of a program, which are not used at run time, by tables of names. The tables follow a number of tables
// that consist of the program itself.
func withTables(t *testing.T, path string, again int, tables [][]byte) {
	t.Helper()
	program, err := os.ReadFile(path)
	require.NoError(t, err)
	sections := slices.Repeat([]elf.Section64{{Type: uint32(elf.SHT_STRTAB), Size: uint64(len(program))}}, again)
	for _, table := range tables {
		sections = append(sections, elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: uint64(len(program)), Size: uint64(len(table))})
		program = append(program, table...)
	}
	binary.LittleEndian.PutUint64(program[40:], uint64(len(program))) // e_shoff
	binary.LittleEndian.PutUint16(program[60:], uint16(len(sections)))
	binary.LittleEndian.PutUint16(program[62:], 0) // e_shstrndx
	program, err = binary.Append(program, binary.LittleEndian, sections)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, program, 0o755))
}
