package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (f Files) plus(other Files) Files {
	return Files{
		Opened: f.Opened + other.Opened, Bytes: f.Bytes + other.Bytes, Listed: f.Listed + other.Listed,
		Changed: f.Changed + other.Changed, Synced: f.Synced + other.Synced,
	}
}

const fileTrace = `7     1.000001 openat(AT_FDCWD</>, "/p/claims/u.json", O_RDONLY|O_CLOEXEC) = -1 ENOENT (No such file or directory)
7     1.000002 openat(AT_FDCWD</>, "/p/claims/v.json", O_RDONLY|O_CLOEXEC <unfinished ...>
8     1.000003 openat(AT_FDCWD</>, "/p/claims/u.json.tmp", O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0600) = 9</p/claims/u.json.tmp>
7     1.000004 <... openat resumed>)        = 8</p/claims/v.json>
7     1.000005 read(8</p/claims/v.json>, ""..., 512 <unfinished ...>
8     1.000006 fsync(9</p/claims/u.json.tmp> <unfinished ...>
7     1.000007 <... read resumed>)          = 500
7     1.000008 read(8</p/claims/v.json>, "", 12) = 0
8     1.000009 <... fsync resumed>)         = 0
8     1.000010 renameat(AT_FDCWD</>, "/p/claims/u.json.tmp", AT_FDCWD</>, "/p/claims/u.json") = 0
8     1.000011 openat(AT_FDCWD</>, "/p/claims", O_RDONLY|O_CLOEXEC) = 9</p/claims>
8     1.000012 fsync(9</p/claims>)               = 0
8     1.000013 openat(AT_FDCWD</>, "/p/claims", O_RDONLY|O_CLOEXEC|O_DIRECTORY) = 9</p/claims>
8     1.000014 getdents64(9</p/claims>, 0x1 /* 4 entries */, 8192) = 128
8     1.000015 getdents64(9</p/claims>, 0x1 /* 0 entries */, 8192) = 0
8     1.000016 unlinkat(AT_FDCWD</>, "/p/claims/u.json", 0) = 0
8     1.000017 read(4<socket:[77]>, ""..., 8192) = 900
8     1.000018 pread64(5</p/locks>, ""..., 8, 4096) = 8
8     1.000019 openat(AT_FDCWD</>, "/p/claims-of-others/x.json", O_RDONLY) = 8</p/claims-of-others/x.json>
8     1.000020 read(8</p/claims/v.json>, ""..., 512 <unfinished ...>
`

func TestFilesBelow_Trace_FilesCounted(t *testing.T) {
	t.Parallel()
	calls, err := parseTrace(strings.NewReader(fileTrace))
	require.NoError(t, err)
	claims := Files{Opened: 3, Bytes: 500, Listed: 1, Changed: 3, Synced: 2}
	assert.Equal(t, claims, filesBelow(calls, "/p/claims"))
	assert.Equal(t, claims.plus(Files{Opened: 1, Bytes: 8}), filesBelow(calls, "/p"))
	assert.Equal(t, Files{Bytes: 8}, filesBelow(calls, "/p/locks"))
	assert.Zero(t, filesBelow(calls, "/q"))
}

func TestFilesBelow_SymbolicLink_FilesCounted(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	link := filepath.Join(dir, "var")
	require.NoError(t, os.Symlink(filepath.Join(dir, "run"), link))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "run"), 0o700))
	calls := []Syscall{
		{Name: "openat", Arguments: `AT_FDCWD</>, "` + link + `/spec.json", O_RDONLY) = 3`},
		{Name: "read", Arguments: `3<` + dir + `/run/spec.json>, ""..., 512) = 7`, Result: 7},
	}
	assert.Equal(t, Files{Opened: 1, Bytes: 7}, filesBelow(calls, link))
}

func TestRestart_CountsOverBudget_EachIsAProblem(t *testing.T) {
	t.Parallel()
	within := Restart{
		Claims: 100, Reads: 9, Records: Files{Opened: 500, Bytes: 1 << 20, Listed: 8}, Specs: Files{Opened: 100, Bytes: 1 << 20},
	}
	assert.NoError(t, problems(within.rows()...))
	for want, change := range map[string]func(*Restart){
		"API writes: 1, the budget is ≤ 0":                                          func(r *Restart) { r.Writes = 1 },
		"reads of records: 501, the budget is ≤ 500":                                func(r *Restart) { r.Records.Opened++ },
		"reads of CDI specs: 101, the budget is ≤ 100":                              func(r *Restart) { r.Specs.Opened++ },
		"listings of the directories of records and specs: 9, the budget is ≤ 8":    func(r *Restart) { r.Specs.Listed++ },
		"records and specs written, moved, removed or synced: 2, the budget is ≤ 0": func(r *Restart) { r.Records.Changed, r.Specs.Changed = 1, 1 },
		"records and specs written, moved, removed or synced: 1, the budget is ≤ 0": func(r *Restart) { r.Records.Synced = 1 },
	} {
		over := within
		change(&over)
		assert.EqualError(t, problems(over.rows()...), want)
	}
}
