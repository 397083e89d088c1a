package hostfs

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLocate_Links_ResolvedInRoot(t *testing.T) {
	t.Parallel()
	host := New(tree(t, map[string]string{
		"run/nvidia/driver/etc/cufile.json":              "->/etc/alternatives/cufile.json",
		"run/nvidia/driver/etc/alternatives/cufile.json": "{}",
		"etc/cufile.json":                                "{}",
		"run/udev/data/b8":                               "x",
		"etc/dangling":                                   "->gone",
	}))
	for _, c := range []struct {
		root, path, want string
	}{
		{"/run/nvidia/driver", "/etc/cufile.json", "/run/nvidia/driver/etc/alternatives/cufile.json"},
		{"/", "/etc/cufile.json", "/etc/cufile.json"},
		{"/run/nvidia/driver", "/run/udev", ""},
		{"/", "/run/udev", "/run/udev"},
		{"/", "/etc/dangling", ""},
	} {
		got, found := host.Locate(c.root, c.path)
		assert.Equal(t, c.want, got, c.path)
		assert.Equal(t, c.want != "", found, c.path)
	}
	got, found := New("/").Locate("/", "/dev/null")
	assert.Equal(t, "/dev/null", got)
	assert.True(t, found)
}
