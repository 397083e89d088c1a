package abi

import (
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

func begin(c *call) error {
	if c.session != nil {
		if err := c.session.Alive(); err != nil {
			return err
		}
		return c.putU64(3, c.id)
	}
	nodes := model.DeviceNodes{Minors: minorsOf(c.args[1].Bytes), Capabilities: capabilitiesOf(c.args[2].Bytes)}
	id, err := c.server.Sessions.Begin(model.DriverVersion(c.text()), nodes)
	if err != nil {
		return err
	}
	return c.putU64(3, id)
}

// minorsOf reads the minors that the library saw, one byte each.
func minorsOf(bytes []byte) []int {
	minors := make([]int, len(bytes))
	for i, b := range bytes {
		minors[i] = int(b)
	}
	return minors
}

// capabilitiesOf reads the minors of the capability nodes that the library saw, four bytes each.
func capabilitiesOf(bytes []byte) []uint32 {
	var list []uint32
	for ; len(bytes) >= 4; bytes = bytes[4:] {
		list = append(list, binary.LittleEndian.Uint32(bytes))
	}
	return list
}

// end receives the number of remaining initialisations of the process.
func end(c *call) error {
	if c.u32(0) == 0 {
		c.server.Sessions.End(c.id)
	}
	return nil
}

func driverVersion(c *call) error { return systemText(c, model.DriverVersion.String) }

func nvmlVersion(c *call) error { return systemText(c, model.DriverVersion.NVML) }

func systemText(c *call, text func(model.DriverVersion) string) error {
	version, loaded := c.server.Node.Driver()
	if !loaded {
		return model.DriverNotLoaded
	}
	return c.putText(0, text(version))
}

func cudaVersion(c *call) error {
	version, loaded := c.server.Node.Driver()
	if !loaded {
		return model.DriverNotLoaded
	}
	return c.putU32(0, uint32(version.CUDA()))
}

func processName(c *call) error {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(int(c.u32(0))) + "/cmdline")
	if err != nil {
		return model.NotFound
	}
	path, _, _ := strings.Cut(string(line), "\x00")
	return c.putText(1, path)
}

func newEventSet(c *call) error {
	id, err := c.session.NewEventSet()
	if err != nil {
		return err
	}
	return c.putU64(0, uint64(id))
}

func freeEventSet(c *call) error { return c.session.FreeEventSet(c.set(0)) }

func eventTypes(c *call) error {
	types, err := c.session.SupportedEvents(c.device())
	if err != nil {
		return err
	}
	return c.putU64(1, uint64(types))
}

func watchEvents(c *call) error {
	return c.session.Watch(c.device(), model.EventType(c.u64(1)), c.set(2))
}

const (
	eventV1Size = 24
	eventSize   = 32
	noInstance  = 0xffffffff // an error belongs to no compute instance
)

func waitEventV1(c *call) error { return wait(c, eventV1Size) }

func waitEvent(c *call) error { return wait(c, eventSize) }

func wait(c *call, size int) error {
	event, err := c.session.Wait(c, c.set(0), time.Duration(c.u32(2))*time.Millisecond)
	if err != nil {
		return err
	}
	data := record{}.u64(uint64(event.GPU), uint64(event.Type), event.Data).u32(event.GPUInstance, noInstance)
	return c.put(1, data[:size])
}

func ofNone(*call) int { return model.AnyGPU }

func ofDevice(c *call) int { return c.device().Ordinal() }

func ofIndex(c *call) int {
	h, err := c.session.ByIndex(int(c.u32(0)))
	return ordinalOrNone(h, err)
}

func ofUUID(c *call) int {
	h, err := c.session.ByUUID(c.text())
	return ordinalOrNone(h, err)
}

func ofPCI(c *call) int {
	h, err := c.session.ByPCI(c.text())
	return ordinalOrNone(h, err)
}

func ordinalOrNone(h model.Handle, err error) int {
	if err != nil {
		return model.AnyGPU
	}
	return h.Ordinal()
}

func count(c *call) error {
	n, err := c.session.Count()
	if err != nil {
		return err
	}
	return c.putU32(0, uint32(n))
}

func byIndex(c *call) error { return found(c)(c.session.ByIndex(int(c.u32(0)))) }

func byUUID(c *call) error { return found(c)(c.session.ByUUID(c.text())) }

func bySerial(c *call) error { return found(c)(c.session.BySerial(c.text())) }

func byPCI(c *call) error { return found(c)(c.session.ByPCI(c.text())) }

func found(c *call) func(model.Handle, error) error {
	return func(h model.Handle, err error) error {
		if err != nil {
			return err
		}
		return c.putU64(1, uint64(h))
	}
}

func word(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
