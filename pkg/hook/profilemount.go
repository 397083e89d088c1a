package hook

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// temporarySize limits the tmpfs on /tmp, which counts as memory of the container.
const temporarySize = "64m"

// preload binds the image's list of libraries, with Prism's library at the end, over /etc/ld.so.preload.
func (r root) preload(own int) error {
	target, old, err := r.preloadTarget()
	if err != nil {
		return fmt.Errorf("%s: %w", preloadFile, err)
	}
	defer func() { _ = unix.Close(target) }()
	if err := notShared(target); err != nil {
		return fmt.Errorf("%s: %w", preloadFile, err)
	}
	list, changed := withLibrary(old)
	if !changed {
		return nil
	}
	if err := errors.Join(writeLink(own, libraryLink, library), writeFile(own, "ld.so.preload", list)); err != nil {
		return err
	}
	if err := bindOver(own, "ld.so.preload", target); err != nil {
		return fmt.Errorf("%s: %w", preloadFile, err)
	}
	return nil
}

// notShared refuses a file in a mount that is shared with other mount namespaces: a mount over it would appear there, on the host too.
func notShared(target int) error {
	var of unix.Statx_t
	if err := unix.Statx(target, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &of); err != nil {
		return fmt.Errorf("finding its mount: %w", err)
	}
	id := strconv.FormatUint(of.Mnt_id, 10)
	there, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return strconv.Itoa(m.ID) != id, false })
	if err != nil {
		return fmt.Errorf("finding its mount: %w", err)
	}
	if len(there) != 1 {
		return fmt.Errorf("finding its mount: mountinfo has %d mounts with id %s", len(there), id)
	}
	if strings.Contains(there[0].Optional, "shared:") {
		return fmt.Errorf("the volume at %s uses mountPropagation Bidirectional; use None or HostToContainer, which do not change the file of the host", there[0].Mountpoint)
	}
	return nil
}

// withLibrary adds the library to a list unless the list contains it. It is the last entry, so that it runs before the other libraries.
func withLibrary(list string) (with []byte, changed bool) {
	const listed = containerFolder + "/" + libraryLink
	for line := range strings.Lines(list) {
		names, _, _ := strings.Cut(line, "#")
		for _, name := range strings.FieldsFunc(names, func(r rune) bool { return strings.ContainsRune(" \t\n:", r) }) {
			if name == listed {
				return nil, false
			}
		}
	}
	if list != "" && !strings.HasSuffix(list, "\n") {
		list += "\n"
	}
	return []byte(list + listed + "\n"), true
}

// preloadTarget opens the file that the list is bound over, and returns the image's list.
func (r root) preloadTarget() (target int, list string, err error) {
	for range 2 {
		fd, err := r.open(preloadFile, unix.O_RDONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			raw, err := readRegular(fd, preloadFile, maxPreload)
			if err != nil {
				return -1, "", err
			}
			target, err := r.open(preloadFile, unix.O_PATH, 0)
			return target, string(raw), err
		}
		if !errors.Is(err, unix.ENOENT) {
			return -1, "", err
		}
		if err := r.make(path.Dir(preloadFile), true); err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, "", fmt.Errorf("creating %s: %w", path.Dir(preloadFile), err)
		}
		err = r.make(preloadFile, false)
		if errors.Is(err, unix.EXDEV) {
			return -1, "", errors.New("it does not exist, and a volume is mounted at /etc: mount the volume elsewhere, or add an empty file")
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, "", fmt.Errorf("creating it: %w", err)
		}
	}
	return -1, "", errors.New("it is a link to a file that does not exist")
}

// bindOver mounts a file in a folder over another one, read-only. The mount is complete before it is visible.
func bindOver(folder int, name string, target int) error {
	tree, err := unix.OpenTree(folder, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("binding %s: %w", name, err)
	}
	defer func() { _ = unix.Close(tree) }()
	attributes := unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE,
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attributes); err != nil {
		return fmt.Errorf("binding %s read-only: %w", name, err)
	}
	if err := unix.MoveMount(tree, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("binding %s over it: %w", name, err)
	}
	return nil
}

// temporary mounts a tmpfs on /tmp if the container cannot write there, because the tool has to.
func (r root) temporary(c *config) error {
	const folder = "/tmp"
	if !c.Root.Readonly {
		return nil
	}
	for range 2 {
		target, err := r.open(folder, unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_NO_XDEV)
		if errors.Is(err, unix.EXDEV) {
			return nil // something is mounted there
		}
		if errors.Is(err, unix.ENOENT) {
			if err := r.make(folder, true); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("creating %s: %w", folder, err)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("opening %s: %w", folder, err)
		}
		defer func() { _ = unix.Close(target) }()
		if err := mountTemporary(target); err != nil {
			return fmt.Errorf("mounting a tmpfs on %s: %w", folder, err)
		}
		return nil
	}
	return fmt.Errorf("%s is a link to a folder that does not exist", folder)
}

func mountTemporary(target int) error {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fs) }()
	if err := errors.Join(unix.FsconfigSetString(fs, "source", "prism"), unix.FsconfigSetString(fs, "size", temporarySize),
		unix.FsconfigSetString(fs, "mode", "1777"), unix.FsconfigCreate(fs)); err != nil {
		return err
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(mount) }()
	return unix.MoveMount(mount, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}
