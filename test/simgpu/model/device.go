package model

const mebi = 1 << 20

// MemoryUse is in bytes. Used does not contain Reserved.
type MemoryUse struct {
	Total, Reserved, Used, Free uint64
}

// Device reads board and identity of a GPU.
func (s *Session) Device(h Handle) (Board, Identity, error) {
	var board Board
	var id Identity
	err := s.with(h, func(g *gpu) error {
		board, id = g.board, g.id
		return nil
	})
	return board, id, err
}

// Memory reads how much memory a GPU has and uses.
func (s *Session) Memory(h Handle) (MemoryUse, error) {
	var use MemoryUse
	err := s.with(h, func(g *gpu) error {
		use.Total = g.board.Memory.TotalMiB * mebi
		use.Reserved = g.board.Memory.ReservedMiB * mebi
		use.Used = min(g.usedMemory()+g.scriptedMemory(s.node.now()), use.Total-use.Reserved)
		use.Free = use.Total - use.Reserved - use.Used
		return nil
	})
	return use, err
}

// ComputeMode reads the compute mode of a GPU.
func (s *Session) ComputeMode(h Handle) (ComputeMode, error) {
	var mode ComputeMode
	err := s.with(h, func(g *gpu) error {
		mode = g.set.compute
		return nil
	})
	return mode, err
}

// SetComputeMode changes it. It fails with NoPermission unless root calls, and with InvalidArgument for a mode that no current GPU
// supports.
func (s *Session) SetComputeMode(h Handle, mode ComputeMode, root bool) error {
	return s.with(h, func(g *gpu) error {
		if mode != ComputeDefault && mode != ComputeProhibited && mode != ComputeExclusiveProcess {
			return InvalidArgument
		}
		if !root {
			return NoPermission
		}
		g.set.compute = mode
		return nil
	})
}

// Persistence reads the persistence mode of a GPU.
func (s *Session) Persistence(h Handle) (bool, error) {
	var on bool
	err := s.with(h, func(g *gpu) error {
		on = g.set.persistence
		return nil
	})
	return on, err
}

// SetPersistence changes it; NoPermission unless root calls.
func (s *Session) SetPersistence(h Handle, on, root bool) error {
	return s.with(h, func(g *gpu) error {
		if !root {
			return NoPermission
		}
		g.set.persistence = on
		return nil
	})
}

// Accounting reads the accounting mode of a GPU.
func (s *Session) Accounting(h Handle) (bool, error) {
	var on bool
	err := s.with(h, func(g *gpu) error {
		on = g.set.accounting
		return nil
	})
	return on, err
}

// SetAccounting changes it; NoPermission unless root calls.
func (s *Session) SetAccounting(h Handle, on, root bool) error {
	return s.with(h, func(g *gpu) error {
		if !root {
			return NoPermission
		}
		g.set.accounting = on
		return nil
	})
}

// TimeSlice reads the time-slice setting of a GPU.
func (s *Session) TimeSlice(h Handle) (TimeSlice, error) {
	var slice TimeSlice
	err := s.with(h, func(g *gpu) error {
		slice = g.set.timeSlice
		return nil
	})
	return slice, err
}

// SetTimeSlice changes it. It fails with InvalidArgument above MaxTimeSlice, with NotSupported in MIG mode, as its instances have no
// time-slice interval, and with NoPermission unless root calls.
func (s *Session) SetTimeSlice(h Handle, slice TimeSlice, root bool) error {
	return s.with(h, func(g *gpu) error {
		if slice > MaxTimeSlice {
			return InvalidArgument
		}
		if g.mig.current {
			return NotSupported
		}
		if !root {
			return NoPermission
		}
		g.set.timeSlice = slice
		return nil
	})
}
