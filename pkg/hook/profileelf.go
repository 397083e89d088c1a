package hook

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of what is read of an executable file.
const (
	maxScripts  = 4 // interpreters that are scripts themselves
	maxLine     = 256
	maxSegments = 256
	maxLoader   = 4096
)

// Of the ELF format.
const (
	headerSize     = 64
	segmentSize    = 56
	segmentOffsets = 32
	segmentCount   = 56
	interpreter    = 3 // PT_INTERP
)

// static says whether the container's first process is certain not to load libraries of the GNU C library. A file in a volume is not read:
// it may be anything's.
func (r root) static(c *config) bool {
	if len(c.Process.Args) == 0 {
		return false
	}
	name := c.Process.Args[0]
	for range maxScripts {
		file, err := r.program(c, name)
		if err != nil {
			return false
		}
		next, static := inspect(file)
		_ = file.Close()
		if next == "" {
			return static
		}
		name = next
	}
	return false
}

// program opens a program as the runtime finds it.
func (r root) program(c *config, name string) (*os.File, error) {
	candidates := []string{name}
	switch {
	case strings.HasPrefix(name, "/"):
	case strings.Contains(name, "/"):
		candidates[0] = path.Join("/", c.Process.Cwd, name)
	default:
		candidates = nil
		for _, variable := range c.Process.Env {
			if list, found := strings.CutPrefix(variable, "PATH="); found {
				candidates = nil // the last one counts
				for _, dir := range strings.Split(list, ":") {
					candidates = append(candidates, path.Join("/", dir, name))
				}
			}
		}
	}
	for _, candidate := range candidates {
		fd, err := r.open(candidate, unix.O_RDONLY|unix.O_NONBLOCK, unix.RESOLVE_NO_XDEV)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		file := os.NewFile(uintptr(fd), candidate)
		if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
			_ = file.Close()
			continue
		}
		return file, nil
	}
	return nil, unix.ENOENT
}

// inspect returns the interpreter of a script, else whether a program is static or of musl. A file that it does not know is neither.
func inspect(file io.ReaderAt) (script string, static bool) {
	begin := make([]byte, maxLine)
	n, err := file.ReadAt(begin, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", false
	}
	begin = begin[:n]
	if line, found := bytes.CutPrefix(begin, []byte("#!")); found {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		if fields := strings.Fields(string(line)); len(fields) > 0 {
			return fields[0], false
		}
		return "", false
	}
	little64 := []byte("\x7fELF\x02\x01")
	if len(begin) < headerSize || !bytes.HasPrefix(begin, little64) {
		return "", false
	}
	loader, found := loaderOf(file, begin)
	return "", found && (loader == "" || strings.Contains(path.Base(loader), "musl"))
}

// loaderOf returns the loader that a program names, if any; found is false where the file makes no sense.
func loaderOf(file io.ReaderAt, header []byte) (loader string, found bool) {
	start := binary.LittleEndian.Uint64(header[segmentOffsets:])
	count := int(binary.LittleEndian.Uint16(header[segmentCount:]))
	if count == 0 || count > maxSegments || start > 1<<40 {
		return "", false
	}
	segments := make([]byte, count*segmentSize)
	if _, err := file.ReadAt(segments, int64(start)); err != nil {
		return "", false
	}
	for s := segments; len(s) > 0; s = s[segmentSize:] {
		if binary.LittleEndian.Uint32(s) != interpreter {
			continue
		}
		offset, size := binary.LittleEndian.Uint64(s[8:]), binary.LittleEndian.Uint64(s[32:])
		if offset > 1<<40 || size == 0 || size > maxLoader {
			return "", false
		}
		name := make([]byte, size)
		if _, err := file.ReadAt(name, int64(offset)); err != nil {
			return "", false
		}
		text, _, _ := bytes.Cut(name, []byte{0})
		return string(text), true
	}
	return "", true
}
