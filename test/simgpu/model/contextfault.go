package model

import "slices"

// CUDA's return codes for faults, with CUDA's numbers: NVML defines no codes for them, and none of its functions returns these.
const (
	IllegalAddress Return = 700 // also to the clients of the MPS server that did not cause it
	ServerNotReady Return = 807
)

// Fault causes a fatal fault of a context, such as an access to an illegal address: from now on its calls return IllegalAddress, as this
// call does. The fault of an MPS client affects all clients of its server on the devices that the fault reaches. The contexts exist until
// their processes exit, and until then the server accepts no new ones: ServerNotReady.
func (s *Session) Fault(h Handle, id uint64) error {
	return s.withContext(h, id, func(_ *gpu, o *occupancy, c *cudaContext, _ uint64) error {
		c.ended = IllegalAddress
		if c.Role == MPSClientContext {
			s.node.spreadFault(o, c.Server)
		}
		return IllegalAddress
	})
}

// ServerFaulted reports whether clients of an MPS server have contexts with a fault on a device.
func (s *Session) ServerFaulted(h Handle, server uint64) (bool, error) {
	faulted := false
	err := s.onDevice(h, func(_ *gpu, o *occupancy, _ uint64) error {
		faulted = o.faulted(server)
		return nil
	})
	return faulted, err
}

// spreadFault ends the contexts of all clients of a server on the device of a fault, on the devices that these clients use too, and
// so on.
func (n *Node) spreadFault(origin *occupancy, server uint64) {
	reached := map[int]bool{} // clients by pid
	for next := []*occupancy{origin}; len(next) > 0; next = n.devicesOf(reached, server) {
		for _, o := range next {
			for _, c := range o.contexts {
				if c.servedBy(server) {
					c.ended, reached[c.PID] = IllegalAddress, true
				}
			}
		}
	}
}

// devicesOf lists devices on which one of the clients has a context without the fault.
func (n *Node) devicesOf(clients map[int]bool, server uint64) []*occupancy {
	var list []*occupancy
	for _, g := range n.gpus {
		for _, o := range g.occupancies() {
			if slices.ContainsFunc(o.contexts, func(c *cudaContext) bool {
				return c.servedBy(server) && clients[c.PID] && c.ended == nil
			}) {
				list = append(list, o)
			}
		}
	}
	return list
}

func (c *cudaContext) servedBy(server uint64) bool {
	return c.Role == MPSClientContext && c.Server == server
}

// faulted reports whether clients of the server have contexts that a fault ended.
func (o *occupancy) faulted(server uint64) bool {
	return slices.ContainsFunc(o.contexts, func(c *cudaContext) bool { return c.servedBy(server) && c.ended != nil })
}
