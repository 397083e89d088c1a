package hook

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// slots is the maximum number of processes of a container that are profiled at once.
const slots = 16

// maxStatus limits the bytes that are read from a process's status.
const maxStatus = 64 << 10

// about describes a container to the profiler.
type about struct {
	claim, node string
	identity
	// init is the pid of the first process in the container, or 0 if unknown.
	init int
	// static: the first process does not load libraries of the GNU C library.
	static bool
}

// lines formats "key=value" lines; a value is one line.
func lines(pairs ...[2]string) []byte {
	var text bytes.Buffer
	for _, pair := range pairs {
		value := strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return '?'
			}
			return r
		}, pair[1])
		fmt.Fprintf(&text, "%s=%.1000s\n", pair[0], value)
	}
	return text.Bytes()
}

// write creates the context and the slots in the container's own folder. Another claim's hook may have run before.
func (a about) write(own int) error {
	pairs := [][2]string{
		{"claim", a.claim}, {"pod", a.pod}, {"namespace", a.namespace}, {"container", a.container}, {"node", a.node},
	}
	if a.init > 0 {
		pairs = append(pairs, [2]string{"localInit", strconv.Itoa(a.init)})
	}
	if a.static {
		pairs = append(pairs, [2]string{"static", "1"})
	}
	switch _, err := readBelow(own, severalFile, maxStatus); {
	case err == nil:
		pairs = append(pairs, [2]string{"several", "1"})
	case !errors.Is(err, unix.ENOENT):
		return err
	}
	if err := writeFile(own, "context", lines(pairs...)); err != nil {
		return err
	}
	if err := makePipes(own); err != nil {
		return fmt.Errorf("creating %s in %s: %w", pipesFolder, containerFolder, err)
	}
	for i := range slots {
		// They are only locked, never written.
		fd, err := unix.Openat(own, "slot-"+strconv.Itoa(i), unix.O_RDONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o444)
		if err != nil {
			return fmt.Errorf("creating slot-%d in %s: %w", i, containerFolder, err)
		}
		_ = unix.Close(fd)
	}
	return nil
}

// pipesFolder is in the container's own folder. prism-run creates pipes there to which only processes of this container, of any user, may
// write.
const pipesFolder = "pipes"

func makePipes(own int) error {
	if err := unix.Mkdirat(own, pipesFolder, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	folder, err := unix.Openat(own, pipesFolder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(folder) }()
	// The runtime may have any umask.
	return unix.Fchmod(folder, unix.S_ISVTX|0o777)
}

// severalFile is in the container's own folder if another claim requests a profile for the container too. That claim's hook may run before
// or after the hook of the mounted plan.
const severalFile = "several"

// several records in the container's own folder that another claim requests a profile.
func several(own int) error {
	if err := writeFile(own, severalFile, nil); err != nil {
		return err
	}
	context, err := readBelow(own, "context", maxStatus)
	if errors.Is(err, unix.ENOENT) {
		return nil // the other hook runs later
	}
	if err != nil || bytes.Contains(context, lines([2]string{"several", "1"})) {
		return err
	}
	return writeFile(own, "context", append(context, lines([2]string{"several", "1"})...))
}

// writeFile replaces a file in a folder with a file that everyone may read.
func writeFile(folder int, name string, content []byte) error {
	return replace(folder, name, func(temporary string) error {
		fd, err := unix.Openat(folder, temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(fd), name)
		_, err = file.Write(content)
		// The runtime may have any umask.
		return errors.Join(err, file.Chmod(0o644), file.Close())
	})
}

// writeLink replaces a symbolic link in a folder.
func writeLink(folder int, name, target string) error {
	return replace(folder, name, func(temporary string) error { return unix.Symlinkat(target, folder, temporary) })
}

// replace renames an object in the container's own folder from the temporary name at which create made it.
func replace(folder int, name string, create func(temporary string) error) error {
	const temporary = ".new"
	// Another hook may have left any kind of file there.
	err := unix.Unlinkat(folder, temporary, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		err = create(temporary)
	}
	if err == nil {
		err = unix.Renameat(folder, temporary, folder, name)
	}
	if err != nil {
		return fmt.Errorf("writing %s in %s: %w", name, containerFolder, err)
	}
	return nil
}

// noteOnce creates a session in the results of the claim with the reason why the container's first process is not profiled for it. The hook
// runs once for each request of the container with a profile; the first run leaves a mark in the container's own folder.
func noteOnce(own int, a about, reason string, cause error, openResults func() (int, error)) error {
	mark := "noted-" + reason + "-" + a.claim
	fd, err := unix.Openat(own, mark, unix.O_RDONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o444)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err == nil {
		_ = unix.Close(fd)
	}
	folder, err := openResults()
	if err != nil {
		return fmt.Errorf("opening the results of claim %s: %w", a.claim, err)
	}
	defer func() { _ = unix.Close(folder) }()
	return note(folder, a, reason, cause)
}

// note creates the session in a folder with untrusted content.
func note(folder int, a about, reason string, cause error) error {
	now := time.Now().UnixNano()
	session := fmt.Sprintf("s%d-%016x", max(a.init, 1), now)
	if err := unix.Mkdirat(folder, session, 0o700); err != nil {
		return err
	}
	inside, err := unix.Openat(folder, session, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(inside) }()
	message := "the first process of the container is statically linked or uses musl, so the loader does not preload a library"
	if cause != nil {
		message = cause.Error()
	}
	fd, err := unix.Openat(inside, "note", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "note")
	started := strconv.FormatInt(now, 10)
	_, err = file.Write(lines(
		[2]string{"version", "1"}, [2]string{"pod", a.pod}, [2]string{"namespace", a.namespace}, [2]string{"container", a.container},
		[2]string{"process", a.process}, [2]string{"pid", strconv.Itoa(max(a.init, 1))}, [2]string{"started", started},
		[2]string{"reason", reason}, [2]string{"message", message}, [2]string{"state", "Failed"},
	))
	return errors.Join(err, file.Close())
}
