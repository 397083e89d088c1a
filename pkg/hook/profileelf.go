package hook

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/pattern"
)

// Limits for reading an executable file.
const (
	maxScripts  = 4 // interpreters that are scripts themselves
	maxLine     = 256
	maxSegments = 256
	maxLoader   = 4096
)

// Constants of the ELF format.
const (
	headerSize     = 64
	segmentSize    = 56
	segmentOffsets = 32
	segmentCount   = 56
	interpreter    = 3 // PT_INTERP
)

// first is the process that the kernel executes first in the container.
type first struct {
	argv []string
	exe  string
	// static: it certainly does not load libraries of the GNU C library.
	static bool
}

// first finds the program of the container's first process, through interpreters of scripts. It does not read files in volumes, which can
// be of any kind.
func (r root) first(c *config) first {
	p := first{argv: c.Process.Args}
	for range maxScripts {
		if len(p.argv) == 0 {
			return p
		}
		file, err := r.program(c, p.argv[0])
		if err != nil {
			return p
		}
		script, static := inspect(file)
		exe, err := r.name(file)
		_ = file.Close()
		if len(script) == 0 || err != nil {
			return first{p.argv, exe, static && err == nil}
		}
		// The kernel passes the executed path of the script.
		p.argv = slices.Concat(script, []string{file.Name()}, p.argv[1:])
	}
	return first{argv: p.argv}
}

// name returns the path of an open file in the container.
func (r root) name(file *os.File) (string, error) {
	at, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(r.fd))
	if err != nil {
		return "", err
	}
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(file.Fd())))
	return strings.TrimPrefix(name, at), err
}

// selects reports whether the mounted plan selects a process. An unreadable plan selects all.
func (r root) selects(p first) bool {
	fd, err := r.open(matchFile, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return true
	}
	raw, err := readRegular(fd, matchFile, maxPlan)
	if err != nil {
		return true
	}
	rules, err := pattern.Decode(raw)
	return err != nil || rules.Match(p.argv, p.exe)
}

// program opens a program in the same way as the runtime.
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
				candidates = nil // the last one applies
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

// inspect returns the interpreter of a script with its argument, if any; otherwise it reports whether a program is static or uses musl.
// Files of unknown formats are neither.
func inspect(file io.ReaderAt) (script []string, static bool) {
	begin := make([]byte, maxLine)
	n, err := file.ReadAt(begin, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false
	}
	begin = begin[:n]
	if line, found := bytes.CutPrefix(begin, []byte("#!")); found {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		name, argument, _ := strings.Cut(strings.ReplaceAll(strings.Trim(string(line), " \t"), "\t", " "), " ")
		script = []string{name}
		if argument = strings.TrimLeft(argument, " "); argument != "" {
			script = append(script, argument)
		}
		return script, false
	}
	little64 := []byte("\x7fELF\x02\x01")
	if len(begin) < headerSize || !bytes.HasPrefix(begin, little64) {
		return nil, false
	}
	loader, found := loaderOf(file, begin)
	return nil, found && (loader == "" || strings.Contains(path.Base(loader), "musl"))
}

// loaderOf returns the loader that a program names, if any; found is false for an invalid file.
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
