package native

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/debian"
)

// others have other runtimes and libraries that care about what is loaded before them, and musl.
var others = debian.Package{
	Name: "debian-beside-preload", Package: "libclang-rt-14-dev", With: []string{"musl", "musl-dev", "libjemalloc2", "libfaketime"}, Free: true,
}

// otherProgram is one that is run with the library and without.
type otherProgram struct {
	// compile are gcc's arguments for testdata/allocates.c; ROOT and RT stand for the folder of the packages, and that of clang's runtimes.
	compile string
	// environment of the program, and what runs it.
	environment, with string
	// sanitized: where it matches, it runs unprofiled.
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

// expand puts the folders into the text.
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

// TestLibrary_OtherPrograms_AsWithout: whatever a program has at its start, it runs as without the library, whether it matches or not.
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

// addresses are addresses and process ids.
var addresses = regexp.MustCompile(`(0x)?[0-9a-f]{4,}`)
