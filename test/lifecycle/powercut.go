package lifecycle

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// change is one change of the disk, as a process journals it.
type change struct {
	Call     string
	Path, To string
	Data     []byte
	Durable  bool
}

const (
	wrote   = "write"
	renamed = "rename"
	removed = "remove"
	synced  = "sync"
	madeDir = "mkdir"
)

// image is what a power cut may leave of a directory: the content of its files by their paths. A path that ends in "/" is a
// directory.
type image map[string]string

// replay is a disk with a cache in front of it. A file's content is safe once it was synced, and its name once the directory
// was; until then each name that was made, moved or removed may be lost or not, whatever became of the others.
type replay struct {
	root string
	// names are what processes see, safe what stays whatever happens.
	names, safe map[string]*inode
	// pending are the changes of names that no sync of their directory has made safe, in their order.
	pending []naming
}

// inode is a file, or a directory.
type inode struct {
	dir          bool
	cached, safe string
}

// naming changes what names stand for, all at once; nil removes one.
type naming map[string]*inode

// lockFile has the bytes that processes lock, which is all that it is for: it is long, and says nothing.
const lockFile = "locks"

// read takes what is in the directory for safe.
func read(dir string) (*replay, error) {
	r := &replay{root: dir, names: map[string]*inode{}, safe: map[string]*inode{}}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.Name() == lockFile {
			return nil
		}
		file := &inode{dir: entry.IsDir()}
		if !file.dir {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			file.cached, file.safe = string(data), string(data)
		}
		r.names[path], r.safe[path] = file, file
		return nil
	})
	return r, err
}

// apply makes one more change. What is not below the directory does not outlive a power cut.
func (r *replay) apply(c change) {
	if c.Path != r.root && !strings.HasPrefix(c.Path, r.root+"/") {
		return
	}
	switch c.Call {
	case wrote:
		file := r.names[c.Path]
		if file == nil {
			file = &inode{}
			r.name(naming{c.Path: file})
		}
		file.cached = string(c.Data)
		if c.Durable {
			file.safe = file.cached
		}
	case renamed:
		r.name(naming{c.Path: nil, c.To: r.names[c.Path]})
	case removed:
		if r.names[c.Path] != nil {
			r.name(naming{c.Path: nil})
		}
	case madeDir:
		for dir := c.Path; r.names[dir] == nil && dir != "/"; dir = filepath.Dir(dir) {
			r.name(naming{dir: {dir: true}})
		}
	case synced:
		r.sync(c.Path)
	}
}

func (r *replay) name(n naming) {
	merge(r.names, n)
	r.pending = append(r.pending, n)
}

func (r *replay) sync(dir string) {
	r.pending = slices.DeleteFunc(r.pending, func(n naming) bool {
		for path := range n {
			if filepath.Dir(path) != dir {
				return false
			}
		}
		merge(r.safe, n)
		return true
	})
}

func merge(names map[string]*inode, n naming) {
	for path, file := range n {
		if file == nil {
			delete(names, path)
			continue
		}
		names[path] = file
	}
}

// maxPending bounds the images of one power cut: beyond it the oldest changes are taken for safe.
const maxPending = 6

// images are all that a power cut may leave now: every choice of the pending names, with the content that was not synced there
// or not.
func (r *replay) images() []image {
	safe, pending := maps.Clone(r.safe), r.pending
	for ; len(pending) > maxPending; pending = pending[1:] {
		merge(safe, pending[0])
	}
	var images []image
	seen := map[string]bool{}
	for choice := range 1 << len(pending) {
		names := maps.Clone(safe)
		for i, n := range pending {
			if choice&(1<<i) != 0 {
				merge(names, n)
			}
		}
		for _, kept := range []bool{false, true} {
			found := imageOf(r.root, names, kept)
			if key := fmt.Sprint(found); !seen[key] {
				seen[key] = true
				images = append(images, found)
			}
		}
	}
	return images
}

// imageOf is what is found under these names; who lost its directory is lost.
func imageOf(root string, names map[string]*inode, kept bool) image {
	found := image{}
	for path, file := range names {
		if path != root && names[filepath.Dir(path)] == nil {
			continue
		}
		switch {
		case file.dir:
			found[path+"/"] = ""
		case kept:
			found[path] = file.cached
		default:
			found[path] = file.safe
		}
	}
	return found
}

// lay puts the image, of a directory that was called from, under another name.
func (i image) lay(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(i)) {
		target := to + strings.TrimPrefix(path, from)
		if strings.HasSuffix(path, "/") {
			if err := os.MkdirAll(target, 0o750); err != nil {
				return err
			}
			continue
		}
		if err := os.WriteFile(target, []byte(i[path]), 0o600); err != nil {
			return err
		}
	}
	return nil
}
