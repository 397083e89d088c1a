package allocation

import (
	"path/filepath"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/mpsd/state"
)

// servers finds the servers of the node's MPS service by the file that the service keeps for each control daemon. Only root on the host
// can write these files.
type servers struct {
	dir  string
	proc *processes
}

// mark marks servers: processes that the service has recorded, and children of a recorded control daemon, which also starts servers without
// a request of the service.
func (m servers) mark(found map[uint32]metrics.ProcessIdentity) {
	var daemons, servers map[hostfs.Process]bool
	for pid, identity := range found {
		if identity.Command != state.Command {
			continue
		}
		if servers == nil {
			daemons, servers = m.recorded()
		}
		serves := servers[hostfs.Process{PID: int(pid), Start: identity.Start}]
		if !serves && len(daemons) > 0 {
			serves = daemons[m.proc.parent(pid, identity.Start)]
		}
		if !serves {
			continue
		}
		identity.Server = true
		found[pid] = identity
	}
}

// recorded reads the files of all control daemons. A daemon with an unreadable file counts as one without servers.
func (m servers) recorded() (daemons, servers map[hostfs.Process]bool) {
	daemons, servers = map[hostfs.Process]bool{}, map[hostfs.Process]bool{}
	if m.dir == "" {
		return daemons, servers
	}
	files, err := filepath.Glob(filepath.Join(m.dir, "*", state.File))
	if err != nil {
		return daemons, servers
	}
	for _, file := range files {
		saved, err := state.Read(file)
		if err != nil {
			continue
		}
		if saved.Daemon.PID > 0 {
			daemons[saved.Daemon] = true
		}
		for _, server := range saved.Processes {
			servers[server] = true
		}
	}
	return daemons, servers
}

// parent returns the parent of the process with this pid and start time; the zero value if it has exited.
func (p *processes) parent(pid uint32, start uint64) hostfs.Process {
	parent, ok := p.parentOf(pid)
	if !ok {
		return hostfs.Process{}
	}
	identity, state := p.stat(p.path(parent))
	if again, after := p.stat(p.path(pid)); state == absent || state == exited || after == absent || again.Start != start {
		return hostfs.Process{}
	}
	return hostfs.Process{PID: int(parent), Start: identity.Start}
}
