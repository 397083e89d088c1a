package podresources

import (
	"bytes"

	"github.com/prism-gpu/prism/pkg/grpcread"
)

// Numbers of fields in k8s.io/kubelet/pkg/apis/podresources/v1. The kubelet sends the fields of a message in the order of their numbers, so a
// container is named before its claims, and a claim before its devices.
const (
	listPods                                                       = 1
	podName, podContainers                                         = 1, 3
	containerName, containerClaims                                 = 1, 5
	claimName, claimNamespace, claimDevices                        = 2, 3, 4
	deviceCDI, deviceDriver, devicePool, deviceName, deviceShareID = 1, 2, 3, 4, 5
	cdiName                                                        = 1
)

// reader reads a list. It reuses the memory of a container and of a claim for the next one.
type reader struct {
	kind, driver []byte
	visit        func(*entry)

	now entry
	// texts stores each name of the driver's devices once.
	texts map[string]string
}

// entry is a claim of a container as the kubelet lists it. It is valid until the function that it was passed to returns.
type entry struct {
	pod, container, namespace, claim []byte
	// cdi are the names of the driver's CDI devices, devices the allocated devices of the driver.
	cdi     []string
	devices []Device
	// ours: the device that is being read belongs to this driver.
	ours bool
}

func newReader(c Client, visit func(*entry)) *reader {
	return &reader{kind: []byte(c.CDIKind + "="), driver: []byte(c.DriverName), visit: visit, texts: map[string]string{}}
}

// answer reads a field of the answer.
func (r *reader) answer(f grpcread.Field) error {
	if f.Number != listPods {
		return nil
	}
	r.now.pod = r.now.pod[:0]
	return f.Each(func(f grpcread.Field) error {
		switch f.Number {
		case podName:
			return keep(&r.now.pod, f)
		case podContainers:
			r.now.container = r.now.container[:0]
			return f.Each(r.container)
		}
		return nil
	})
}

func (r *reader) container(f grpcread.Field) error {
	switch f.Number {
	case containerName:
		return keep(&r.now.container, f)
	case containerClaims:
		n := &r.now
		n.namespace, n.claim, n.cdi, n.devices = n.namespace[:0], n.claim[:0], n.cdi[:0], n.devices[:0]
		err := f.Each(r.claim)
		if err == nil {
			r.visit(n)
		}
		return err
	}
	return nil
}

func (r *reader) claim(f grpcread.Field) error {
	switch f.Number {
	case claimName:
		return keep(&r.now.claim, f)
	case claimNamespace:
		return keep(&r.now.namespace, f)
	case claimDevices:
		r.now.ours = false
		return f.Each(r.device)
	}
	return nil
}

func (r *reader) device(f grpcread.Field) error {
	n := &r.now
	if f.Number == deviceCDI {
		return f.Each(r.cdi)
	}
	if f.Number != deviceDriver && !n.ours {
		return nil
	}
	text, err := f.Text()
	if f.Number == deviceDriver {
		if n.ours = len(r.driver) > 0 && bytes.Equal(text, r.driver); n.ours {
			n.devices = append(n.devices, Device{})
		}
		return err
	}
	d := &n.devices[len(n.devices)-1]
	switch f.Number {
	case devicePool:
		d.Pool = r.once(text)
	case deviceName:
		d.Device = r.once(text)
	case deviceShareID:
		d.ShareID = r.once(text)
	}
	return err
}

func (r *reader) cdi(f grpcread.Field) error {
	if f.Number != cdiName {
		return nil
	}
	name, err := f.Text()
	if device, ours := bytes.CutPrefix(name, r.kind); ours {
		r.now.cdi = append(r.now.cdi, r.once(device))
	}
	return err
}

// once returns the same string for equal texts of this driver's devices: nodes have few devices, and tenants many containers.
func (r *reader) once(text []byte) string {
	s, has := r.texts[string(text)]
	if !has {
		s = string(text)
		r.texts[s] = s
	}
	return s
}

// keep copies a text into reused memory.
func keep(into *[]byte, f grpcread.Field) error {
	text, err := f.Text()
	*into = append((*into)[:0], text...)
	return err
}
