package allocation

import (
	"context"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/metrics"
)

// Identify says what the processes are that have these pids now, in the pid namespace of Options.ProcRoot. A pid that /proc does not have
// is left out; a process that has exited and is not reaped has no start time. Where one is in a cgroup that may be of a new container,
// the runtime is asked, which takes at most a second, and at most once a second: until then the process is Unresolved.
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
	t.mps.mark(found)
	return found
}

// HidesProcesses says that pids which the driver reports here mean nothing, or that it leaves out those of other containers: this process's
// pid namespace is not the host's. The source SourceProc says why.
func (t *Tracker) HidesProcesses() bool {
	err := t.proc.check()
	t.sources.note(SourceProc, err)
	return err != nil
}

// resolve fills in the containers and lists the ids that the runtime has to be asked for.
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

// refresh asks the runtime whether or not a new container is known of.
func (t *Tracker) refresh(ctx context.Context) {
	if t.cri.ask(ctx, nil) {
		t.renew()
	}
}

// followRuntime asks a runtime that does not answer again, until the context ends.
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
