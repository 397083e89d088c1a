package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/wire"
)

// direct calls the simulated driver like its library, without library and plugin. It measures the time of the driver alone.
type direct struct {
	conn    io.ReadWriteCloser
	session uint64
	gpu     []byte // the handle of the first GPU
}

// openDirect starts a session that sees the first GPU and may partition it.
func openDirect(paths layout.Paths) (_ *direct, err error) {
	conn, err := dialBlocking(paths.Socket())
	if err != nil {
		return nil, fmt.Errorf("connecting to the simulated driver: %w", err)
	}
	d := &direct{conn: conn}
	defer func() {
		if err != nil {
			err = errors.Join(err, conn.Close())
		}
	}()
	answer, err := d.call("nvmlInit_v2", in(nil), in([]byte{0}), in(number(model.ConfigCapability)), out64)
	if err != nil {
		return nil, err
	}
	d.session = binary.LittleEndian.Uint64(answer)
	d.gpu, err = d.call("nvmlDeviceGetHandleByIndex_v2", in(number(0)), out64)
	return d, err
}

// dialBlocking connects as a C library does: a read waits in the kernel, not in Go's poller.
func dialBlocking(socket string) (io.ReadWriteCloser, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	conn := os.NewFile(uintptr(fd), socket)
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket}); err != nil {
		return nil, errors.Join(os.NewSyscallError("connect", err), conn.Close())
	}
	return conn, nil
}

var (
	out64 = wire.Arg{Direction: wire.Out, Size: 8}
	out32 = wire.Arg{Direction: wire.Out, Size: 4}
)

func in(bytes []byte) wire.Arg { return wire.Arg{Direction: wire.In, Size: len(bytes), Bytes: bytes} }

func number(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }

// call makes one call, and returns its first result.
func (d *direct) call(name string, args ...wire.Arg) ([]byte, error) {
	if err := wire.WriteRequest(d.conn, wire.Request{Session: d.session, Name: name, Args: args}); err != nil {
		return nil, fmt.Errorf("calling %s: %w", name, err)
	}
	reply, err := wire.ReadReply(d.conn)
	if err == nil && reply.Return != 0 {
		err = model.Return(reply.Return)
	}
	if err != nil {
		return nil, fmt.Errorf("calling %s: %w", name, err)
	}
	if len(reply.Outputs) == 0 {
		return nil, nil
	}
	return reply.Outputs[0], nil
}

// read is a call that changes nothing.
func (d *direct) read() error {
	_, err := d.call("nvmlDeviceGetMigMode", in(d.gpu), out32, out32)
	return err
}

// setMode turns MIG mode on (1) or off (0).
func (d *direct) setMode(mode uint32) error {
	_, err := d.call("nvmlDeviceSetMigMode", in(d.gpu), in(number(mode)), out32)
	return err
}

// The driver's ids of the smallest profile, and of the compute instance that fills one.
const (
	smallestProfile = 19
	fillingProfile  = 0
)

// migDevices creates and removes the smallest MIG device n times, and returns how long each took.
func (d *direct) migDevices(n int) (l Latency, err error) {
	for range n {
		var instance, compute []byte
		made, err := timed(func() (err error) {
			// Placements are two numbers, start and size.
			at := append(number(0), number(1)...)
			if instance, err = d.call("nvmlDeviceCreateGpuInstanceWithPlacement", in(d.gpu), in(number(smallestProfile)), in(at), out64); err != nil {
				return err
			}
			compute, err = d.call("nvmlGpuInstanceCreateComputeInstance", in(instance), in(number(fillingProfile)), out64)
			return err
		})
		if err != nil {
			return l, err
		}
		removed, err := timed(func() error {
			if _, err := d.call("nvmlComputeInstanceDestroy", in(compute)); err != nil {
				return err
			}
			_, err := d.call("nvmlGpuInstanceDestroy", in(instance))
			return err
		})
		if err != nil {
			return l, err
		}
		l.add(Latency{Samples{made}, Samples{removed}})
	}
	return l, nil
}

// driverTime measures the driver alone, on a GPU whose MIG mode is off, and turns it off again.
func (m *migBench) driverTime() (err error) {
	d, err := openDirect(m.driver.paths)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.conn.Close()) }()
	if m.call, err = repeat(callSamples, warmUp, d.read); err != nil {
		return err
	}
	if err := errors.Join(d.setMode(1), m.driver.Take(nvmlTime)); err != nil {
		return err
	}
	m.driverAlone, err = d.migDevices(driverSamples)
	return errors.Join(err, m.driver.Take(model.MIGLatency{}), d.setMode(0))
}

// without subtracts the time of the driver from each sample.
func (s Samples) without(driver time.Duration) Samples {
	rest := make(Samples, len(s))
	for i := range s {
		rest[i] = s[i] - driver
	}
	return rest
}
