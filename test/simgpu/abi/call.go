package abi

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/wire"
)

// Caller is the process behind a connection.
type Caller struct {
	PID     int
	Process string
	Root    bool
}

// Sessions are the initialised libraries of a daemon.
type Sessions interface {
	// Begin starts a session for a library that was initialised.
	Begin(library model.DriverVersion, nodes model.DeviceNodes) (uint64, error)
	// Find returns nil for a session that has ended.
	Find(id uint64) *model.Session
	// End closes a session.
	End(id uint64)
}

// Server serves calls with a model.
type Server struct {
	Node     *model.Node
	Sessions Sessions
}

// call is one request and its outputs.
type call struct {
	context.Context
	server  Server
	caller  Caller
	id      uint64
	session *model.Session
	args    []wire.Arg
	outputs [][]byte // by argument; nil for inputs
}

// Answer serves one request. The error is non-nil only if ctx is done first.
func (s Server) Answer(ctx context.Context, caller Caller, request wire.Request) (wire.Reply, error) {
	s.Node.Calls.Add(caller.PID, caller.Process, request.Name)
	c := &call{
		Context: ctx, server: s, caller: caller,
		id: request.Session, args: request.Args, outputs: make([][]byte, len(request.Args)),
	}
	err := c.serve(find(request.Name), request.Name)
	var code model.Return
	if err != nil && !errors.As(err, &code) {
		return wire.Reply{}, err
	}
	reply := wire.Reply{Return: int32(code)}
	for i, arg := range c.args {
		if arg.Direction != wire.In {
			reply.Outputs = append(reply.Outputs, c.outputs[i])
		}
	}
	return reply, nil
}

func (c *call) serve(symbol *Symbol, name string) error {
	if symbol == nil || symbol.answer == nil {
		return model.FunctionNotFound
	}
	if !fits(symbol.Params, c.args) {
		return model.InvalidArgument
	}
	c.session = c.server.Sessions.Find(c.id)
	gpu := model.AnyGPU
	if symbol.locate != nil && c.session != nil {
		gpu = symbol.locate(c)
	}
	if err := c.server.Node.Faults.Pass(c, name, gpu); err != nil {
		return err
	}
	// The library only sends a session that Init returned: an unknown one belonged to an unloaded driver.
	if c.session == nil && symbol.locate != nil {
		return model.DriverNotLoaded
	}
	return symbol.answer(c)
}

// fits checks the arguments against the table, so that answers can index
// them without checks.
func fits(params []Param, args []wire.Arg) bool {
	i := 0
	for _, p := range params {
		for _, want := range p.wire() {
			if i >= len(args) || args[i].Direction != want.Direction {
				return false
			}
			if want.Size >= 0 && args[i].Size != want.Size {
				return false
			}
			i++
		}
	}
	return i == len(args)
}

// wire returns the wire arguments of a parameter; a Size of -1 means any.
func (p Param) wire() []wire.Arg {
	switch p.Kind {
	case Pointer, U64:
		return []wire.Arg{{Direction: wire.In, Size: 8}}
	case U32:
		return []wire.Arg{{Direction: wire.In, Size: 4}}
	case CString:
		return []wire.Arg{{Direction: wire.In, Size: -1}}
	case Text:
		return []wire.Arg{{Direction: wire.Out, Size: -1}}
	case Output:
		return []wire.Arg{{Direction: wire.Out, Size: p.Size}}
	case Versioned:
		return []wire.Arg{{Direction: wire.InOut, Size: -1}}
	case Counted:
		return []wire.Arg{{Direction: wire.InOut, Size: 4}, {Direction: wire.Out, Size: -1}}
	case Listed:
		return []wire.Arg{{Direction: wire.Out, Size: -1}, {Direction: wire.InOut, Size: 4}}
	case Input:
		return []wire.Arg{{Direction: wire.In, Size: p.Size}}
	case Exchanged:
		return []wire.Arg{{Direction: wire.InOut, Size: p.Size}}
	case Filled:
		return []wire.Arg{{Direction: wire.InOut, Size: -1}}
	}
	return nil
}

func (c *call) u32(i int) uint32          { return binary.LittleEndian.Uint32(c.args[i].Bytes) }
func (c *call) u64(i int) uint64          { return binary.LittleEndian.Uint64(c.args[i].Bytes) }
func (c *call) text() string              { return string(c.args[0].Bytes) }
func (c *call) device() model.Handle      { return model.Handle(c.u64(0)) }
func (c *call) set(i int) model.SetID     { return model.SetID(c.u64(i)) }
func (c *call) put(i int, b []byte) error { c.outputs[i] = b; return nil }
func (c *call) putU32(i int, v uint32) error {
	return c.put(i, binary.LittleEndian.AppendUint32(nil, v))
}
func (c *call) putU64(i int, v uint64) error {
	return c.put(i, binary.LittleEndian.AppendUint64(nil, v))
}

// putText writes a C string; InsufficientSize if the caller's buffer is too small.
func (c *call) putText(i int, s string) error {
	if len(s)+1 > c.args[i].Size {
		return model.InsufficientSize
	}
	return c.put(i, append([]byte(s), 0))
}

// checkVersion compares the version word of a Versioned struct with the
// versions that the driver knows; NVML packs the size into the low 24 bits.
func (c *call) checkVersion(i int, versions ...uint32) (uint32, error) {
	if c.args[i].Size < 4 {
		return 0, model.InvalidArgument
	}
	got := c.u32(i)
	for _, version := range versions {
		if got == version {
			return got, nil
		}
	}
	return 0, model.VersionMismatch
}
