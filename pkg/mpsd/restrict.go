package mpsd

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// keptCapabilities are needed by a control daemon that starts servers of other users in its own directories, and by servers that lock
// memory. Whether a server needs more was not tested on a GPU.
var keptCapabilities = map[uintptr]bool{
	unix.CAP_CHOWN: true, unix.CAP_DAC_OVERRIDE: true, unix.CAP_DAC_READ_SEARCH: true, unix.CAP_FOWNER: true, unix.CAP_FSETID: true,
	unix.CAP_KILL: true, unix.CAP_SETGID: true, unix.CAP_SETUID: true, unix.CAP_IPC_LOCK: true, unix.CAP_IPC_OWNER: true,
	unix.CAP_SYS_NICE: true, unix.CAP_SYS_RESOURCE: true,
}

// mountCalls change mounts, namespaces or the kernel's code. With them a process could escape the mount tree.
var mountCalls = []uint32{
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN,
	unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_SETNS, unix.SYS_UNSHARE,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT,
}

// otherCalls change other processes, the clock or settings of the machine, or reach much of the kernel.
var otherCalls = []uint32{
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_SYSLOG,
}

// restrict removes rights from the next program of this thread and its children.
func (h Hardening) restrict() error {
	switch h {
	case HardeningNone:
		return nil
	case HardeningFull:
		if err := dropCapabilities(); err != nil {
			return err
		}
		return forbid(append(slices.Clone(mountCalls), otherCalls...))
	default:
		return forbid(mountCalls)
	}
}

// dropCapabilities permanently drops all but keptCapabilities, and makes /sys read-only.
func dropCapabilities() error {
	read := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/sys", unix.AT_RECURSIVE, &read); err != nil {
		return fmt.Errorf("mounting /sys read-only: %w", err)
	}
	for capability := uintptr(0); ; capability++ {
		held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, capability, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // the kernel has no more
		}
		if err == nil && held == 1 && !keptCapabilities[capability] {
			err = unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		}
		if err != nil {
			return fmt.Errorf("dropping capability %d: %w", capability, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	return nil
}

// Offsets in struct seccomp_data, in bytes.
const callOffset, architectureOffset = 0, 4

// x32Calls is the first number of calls of the x32 ABI, which uses the architecture of amd64.
const x32Calls = 0x40000000

// forbid makes the calls fail with EPERM. All calls of the machine's other ABIs fail, too: their numbers differ, so the list could be
// bypassed.
func forbid(calls []uint32) error {
	architecture, known := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !known {
		return fmt.Errorf("no system call filter for %s", runtime.GOARCH)
	}
	const deny, allow = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM), unix.SECCOMP_RET_ALLOW
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: architectureOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: architecture, SkipTrue: 1},
		bpf.RetConstant{Val: deny},
		bpf.LoadAbsolute{Off: callOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32Calls, SkipTrue: 1},
		bpf.RetConstant{Val: deny},
	}
	for _, call := range calls {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: call, SkipTrue: 1}, bpf.RetConstant{Val: deny})
	}
	raw, err := bpf.Assemble(append(program, bpf.RetConstant{Val: allow}))
	if err != nil {
		return fmt.Errorf("assembling the system call filter: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, instruction := range raw {
		filter[i] = unix.SockFilter{Code: instruction.Op, Jt: instruction.Jt, Jf: instruction.Jf, K: instruction.K}
	}
	loaded := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}                                                    //nolint:gosec // some hundred
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&loaded)), 0, 0); err != nil { //nolint:gosec // required by the call
		return fmt.Errorf("loading the system call filter: %w", err)
	}
	return nil
}
