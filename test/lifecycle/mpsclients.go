package lifecycle

import (
	"errors"
	"fmt"
	"maps"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

var errProhibited = errors.New("the compute mode of the device is Prohibited")

// connect starts a CUDA program in a container of the claim, which connects to the daemon, or else uses the device without MPS.
func (s *mpsService) connect(id gpu.MPSDaemonID, device, uid string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.daemons[id]; d != nil && d.State == gpu.MPSRunning {
		if len(d.Servers) == 0 {
			if err := s.startServer(d); err != nil {
				return err
			}
		}
		s.pids++
		d.clients[s.pids] = uid
		return nil
	}
	if mode, _ := s.mode(device); mode == model.ComputeProhibited {
		return errProhibited
	}
	err := fmt.Errorf("a program of claim %s uses %s without MPS", uid, device)
	if !s.disturbed {
		s.wrong = append(s.wrong, err)
	}
	return err
}

// connected returns the programs of a claim.
func (s *mpsService) connected(uid string) (pids []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.daemons {
		for pid, of := range d.clients {
			if of == uid {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// disconnect ends the programs of a claim.
func (s *mpsService) disconnect(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.daemons {
		maps.DeleteFunc(d.clients, func(_ int, of string) bool { return of == uid })
	}
}

// containersExit ends the programs of a claim that is about to be unprepared, as the kubelet does.
func (s *mpsService) containersExit(uid string) {
	if s != nil && !s.stuck[uid] {
		s.disconnect(uid)
	}
}
