package lifecycle

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// change is one change of the disk in the journal of a process, or another event at that moment.
type change struct {
	Call     string
	Path, To string
	Data     []byte `json:",omitempty"`
	Durable  bool   `json:",omitempty"`
	// At is the number of a fault point.
	At int `json:",omitempty"`
}

// Changes of the disk.
const (
	wrote   = "write"
	renamed = "rename"
	removed = "remove"
	synced  = "sync"
	madeDir = "mkdir"
)

// Other entries of a journal.
const (
	// reached and passed are the moments before and after the effect of the counted fault point At; Path is its site.
	reached = "reached"
	passed  = "passed"
	// reported: the process has written Data, which is the result of an act.
	reported = "reported"
	// inCluster: Data is the state of the API server from then on.
	inCluster = "cluster"
)

// image is a state of a directory that a power cut may leave: the content of files by path. A path that ends in "/" is a directory.
type image map[string]string

// replay is a disk with a cache. The content of a file is durable once it is synced, and its name once its directory is; until then each
// created, moved or removed name may be lost or not, independently of the others.
type replay struct {
	roots []string
	// names are visible to processes, safe are durable.
	names, safe map[string]*inode
	// pending are the changes of names that are not durable yet, in order.
	pending []naming
}

// inode is a file, or a directory.
type inode struct {
	dir          bool
	cached, safe string
}

// naming is an atomic change of names; nil removes one.
type naming map[string]*inode

// lockFile contains the byte ranges that processes lock. It is large and stores no content.
const lockFile = "locks"

// read treats the content of directories as durable.
func read(dirs ...string) (*replay, error) {
	r := &replay{roots: dirs, names: map[string]*inode{}, safe: map[string]*inode{}}
	for _, dir := range dirs {
		if err := r.read(dir); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *replay) read(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
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
}

// clone returns an independent copy.
func (r *replay) clone() *replay {
	copies := map[*inode]*inode{}
	of := func(file *inode) *inode {
		if file == nil {
			return nil
		}
		if copies[file] == nil {
			same := *file
			copies[file] = &same
		}
		return copies[file]
	}
	named := func(names map[string]*inode) map[string]*inode {
		all := make(map[string]*inode, len(names))
		for path, file := range names {
			all[path] = of(file)
		}
		return all
	}
	next := &replay{roots: r.roots, names: named(r.names), safe: named(r.safe)}
	for _, n := range r.pending {
		next.pending = append(next.pending, named(n))
	}
	return next
}

// apply makes a change. A power cut loses everything outside the directories.
func (r *replay) apply(c change) {
	if !slices.ContainsFunc(r.roots, func(root string) bool { return c.Path == root || strings.HasPrefix(c.Path, root+"/") }) {
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
		n := naming{c.Path: nil, c.To: r.names[c.Path]}
		for _, below := range r.below(c.Path) {
			n[below], n[c.To+strings.TrimPrefix(below, c.Path)] = nil, r.names[below]
		}
		r.name(n)
	case removed:
		if r.names[c.Path] != nil {
			n := naming{c.Path: nil}
			for _, below := range r.below(c.Path) {
				n[below] = nil
			}
			r.name(n)
		}
	case madeDir:
		for dir := c.Path; r.names[dir] == nil && dir != "/"; dir = filepath.Dir(dir) {
			r.name(naming{dir: {dir: true}})
		}
	case synced:
		r.sync(c.Path)
	}
}

// below returns the names in a directory.
func (r *replay) below(dir string) (paths []string) {
	for path := range r.names {
		if strings.HasPrefix(path, dir+"/") {
			paths = append(paths, path)
		}
	}
	return paths
}

func (r *replay) name(n naming) {
	merge(r.names, n)
	r.pending = append(r.pending, n)
}

func (r *replay) sync(dir string) {
	r.pending = slices.DeleteFunc(r.pending, func(n naming) bool {
		for path := range n {
			if filepath.Dir(path) != dir && !n.moves(filepath.Dir(path)) {
				return false
			}
		}
		merge(r.safe, n)
		return true
	})
}

// moves reports whether the directory is renamed or removed: its content moves with it.
func (n naming) moves(dir string) bool {
	_, there := n[dir]
	return there
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

// maxPending bounds the images of one power cut: older changes are taken as durable. If a profile is created beside a claim, many names are
// never synced; then fewer suffice.
const maxPending, maxPendingProfiled = 6, 4

// images returns all states that a power cut may leave now: every subset of the pending names, with and without the content that is not
// synced.
func (r *replay) images() []image {
	safe, pending, most := maps.Clone(r.safe), r.pending, maxPending
	if len(r.roots) > 1 {
		most = maxPendingProfiled
	}
	for ; len(pending) > most; pending = pending[1:] {
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
			found := imageOf(r.roots, names, kept)
			if key := fmt.Sprint(found); !seen[key] {
				seen[key] = true
				images = append(images, found)
			}
		}
	}
	return images
}

// imageOf returns the image with these names; entries of lost directories are lost.
func imageOf(roots []string, names map[string]*inode, kept bool) image {
	found := image{}
	for path, file := range names {
		switch {
		case !isReached(roots, names, path):
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

// isReached reports whether the directories that lead to a path exist.
func isReached(roots []string, names map[string]*inode, path string) bool {
	for !slices.Contains(roots, path) {
		if path = filepath.Dir(path); names[path] == nil {
			return false
		}
	}
	return true
}

// lay writes the image of directories below from to the same directories below to.
func (i image) lay(from, to string, dirs ...string) error {
	for _, dir := range dirs {
		if err := os.RemoveAll(to + strings.TrimPrefix(dir, from)); err != nil {
			return err
		}
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
