package allocation

import (
	"context"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// Identify returns the identities of the current processes with these pids, in the pid namespace of Options.ProcRoot. Pids that are missing
// in /proc are missing in the result; a process that has exited and is not reaped has no start time. If a process is in a cgroup that may
// belong to a new container, the runtime is queried, for at most a second and at most once a second: until then the process is Unresolved.
func (t *Tracker) Identify(pids []uint32) map[uint32]metrics.ProcessIdentity {
	found := make(map[uint32]metrics.ProcessIdentity, len(pids))
	nested := make(map[uint32][]string, len(pids))
	for _, pid := range pids {
		if identity, ids, state := t.proc.read(pid); state != absent {
			found[pid], nested[pid] = identity, ids
		}
	}
	if unknown := t.resolve(found, nested); len(unknown) > 0 && t.cri.ask(context.Background(), unknown) {
		t.renew()
		t.resolve(found, nested)
	}
	t.servers.mark(found)
	return found
}

// HidesProcesses reports whether this process's pid namespace is not the host's: pids from the driver are then meaningless, or the driver
// omits processes of other containers. The source SourceProc contains the reason.
func (t *Tracker) HidesProcesses() bool {
	err := t.proc.check()
	t.sources.note(SourceProc, err)
	return err != nil
}

// resolve sets the containers and lists the ids for which the runtime must be queried.
func (t *Tracker) resolve(found map[uint32]metrics.ProcessIdentity, nested map[uint32][]string) (unknown []string) {
	now := time.Now()
	for pid, identity := range found {
		id, ask := t.cri.outermost(nested[pid], now)
		if ask {
			unknown = append(unknown, nested[pid]...)
		}
		identity.ContainerID, identity.Unresolved = id, ask
		found[pid] = identity
	}
	slices.Sort(unknown)
	return slices.Compact(unknown)
}

// refresh queries the runtime, even if no new container is known.
func (t *Tracker) refresh(ctx context.Context) {
	if t.cri.ask(ctx, nil) {
		t.renew()
	}
}

// followRuntime repeats queries of a runtime that does not answer, until the context ends.
func (t *Tracker) followRuntime(ctx context.Context) {
	every := time.NewTicker(t.schedule.pods)
	defer every.Stop()
	t.refresh(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			if !t.sources.ok(SourceCRI) {
				t.refresh(ctx)
			}
		}
	}
}
