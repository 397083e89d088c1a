// Package image creates container images from files without a container engine. The same files give the same image, byte for byte.
package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// entry is one file, link or folder of an image.
type entry struct {
	mode   fs.FileMode // type and permissions
	target string      // of a symbolic link
	source string      // file on this machine with the content, or
	text   []byte      // the content itself
}

// Rootfs is the file tree of an image. Later additions replace earlier ones at the same path.
type Rootfs struct {
	entries map[string]entry
	merged  bool
}

// NewRootfs creates an empty tree. With merged, /bin, /sbin, /lib and /lib64 are links into /usr as on current Debian, and files that are
// added below them are stored there.
func NewRootfs(merged bool) *Rootfs {
	r := &Rootfs{entries: map[string]entry{}, merged: merged}
	if merged {
		for _, dir := range mergedDirs {
			r.entries[dir] = entry{mode: fs.ModeSymlink | 0o777, target: "usr/" + dir}
			r.Folder("usr/"+dir, 0o755)
		}
	}
	return r
}

var mergedDirs = []string{"bin", "sbin", "lib", "lib64"}

// clean converts a path of the image to the key of its entry.
func (r *Rootfs) clean(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if first, rest, found := strings.Cut(name, "/"); r.merged && found && slices.Contains(mergedDirs, first) {
		return path.Join("usr", first, rest)
	}
	return name
}

func (r *Rootfs) add(name string, e entry) {
	name = r.clean(name)
	if name == "" || r.merged && slices.Contains(mergedDirs, name) {
		return
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, ok := r.entries[dir]; !ok {
			r.entries[dir] = entry{mode: fs.ModeDir | 0o755}
		}
	}
	r.entries[name] = e
}

// Folder adds an empty folder.
func (r *Rootfs) Folder(name string, mode fs.FileMode) { r.add(name, entry{mode: fs.ModeDir | mode}) }

// Text adds a small file.
func (r *Rootfs) Text(name, text string, mode fs.FileMode) {
	r.add(name, entry{mode: mode, text: []byte(text)})
}

// Link adds a symbolic link.
func (r *Rootfs) Link(name, target string) {
	r.add(name, entry{mode: fs.ModeSymlink | 0o777, target: target})
}

// File adds a file of this machine. Mode 0 keeps the file's own permissions.
func (r *Rootfs) File(name, source string, mode fs.FileMode) error {
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("adding %s to the image: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("adding %s to the image: %s is not a regular file", name, source)
	}
	if mode == 0 {
		mode = info.Mode().Perm()
	}
	r.add(name, entry{mode: mode, source: source})
	return nil
}

// Tree adds everything below a folder of this machine except the paths for which skip returns true. A nil skip keeps all.
func (r *Rootfs) Tree(dir string, skip func(name string) bool) error {
	return filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("adding %s to the image: %w", dir, err)
		}
		name, err := filepath.Rel(dir, file)
		if err != nil || name == "." {
			return err
		}
		if skip != nil && skip(filepath.ToSlash(name)) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return r.addFrom(name, file, d)
	})
}

func (r *Rootfs) addFrom(name, file string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return fmt.Errorf("adding %s to the image: %w", file, err)
	}
	e := entry{mode: info.Mode()}
	switch {
	case info.Mode().IsRegular():
		e.source = file
	case info.Mode()&fs.ModeSymlink != 0:
		if e.target, err = os.Readlink(file); err != nil {
			return fmt.Errorf("adding %s to the image: %w", file, err)
		}
	case !info.IsDir():
		return fmt.Errorf("adding %s to the image: only files, links and folders can be added", file)
	}
	r.add(name, e)
	return nil
}

// content opens the content of the entry and returns its size.
func (e entry) content() (io.ReadCloser, int64, error) {
	if e.source == "" {
		return io.NopCloser(strings.NewReader(string(e.text))), int64(len(e.text)), nil
	}
	file, err := os.Open(e.source)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}
