package lifecycle

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sharesMPS prepares a claim with an MPS share of each of these GPUs.
func sharesMPS(claim string, gpus ...int) Act { return Act{Call: "prepare", Claim: claim, MPS: gpus} }

// withMPS configures the claim's devices for several MPS clients.
func (a Act) withMPS() Act {
	a.StrategyMPS = true
	return a
}

// connects starts programs in the claim's containers, which the kubelet ends before it unprepares the claim.
func connects(claim string) Act { return Act{Call: "connect", Claim: claim} }

// timePasses lets that much time pass.
func timePasses(d time.Duration) Act { return Act{Call: "pass", For: d} }

// Actions of the leader, and events of daemons and service.
var (
	reconcilesMPS      = Act{Call: "reconcileMPS"}
	inspectsMPS        = Act{Call: "inspectMPS"}
	daemonsDie         = Act{Call: "daemonsDie"}
	serviceVanishes    = Act{Call: "serviceVanishes"}
	serviceInterrupted = Act{Call: "serviceInterrupted"}
	serviceResumes     = Act{Call: "serviceResumes"}
	driverReplaced     = Act{Call: "driverReplaced"}
	modesReset         = Act{Call: "modesReset"}
	serversHang        = Act{Call: "serversHang"}
	serversExit        = Act{Call: "serversExit"}
	limitsTaken        = Act{Call: "limitsTaken"}
	driverSingleUser   = Act{Call: "driverSingleUser"}
)

// mpsScenarios are the scenarios of claims that share devices with MPS.
var mpsScenarios = []scenario{
	{name: "one share", long: true, early: true, acts: []Act{sharesMPS("a", 0), connects("a"), sharesMPS("a", 0), unprepares("a"), unprepares("a")}},
	{name: "two shares of one GPU", acts: []Act{sharesMPS("a", 0), sharesMPS("b", 0), connects("a"), unprepares("b"), connects("a"), unprepares("a")}},
	{name: "records of before extensions", acts: []Act{
		sharesMPS("a", 0), sharesMPS("b", 0), formerRecords, sharesMPS("a", 0), unprepares("b"), connects("a"), unprepares("a"),
	}},
	{name: "two shares in one claim", long: true, acts: []Act{sharesMPS("a", 0, 0), sharesMPS("b", 0), unprepares("a"), unprepares("b")}},
	{name: "two claims at once", acts: []Act{
		sharesMPS("a", 0).beside(), sharesMPS("b", 0), connects("a"), connects("b"), unprepares("a").beside(), unprepares("b"),
	}},
	{name: "shares and a whole GPU in turn", long: true, acts: []Act{
		sharesMPS("a", 0), unprepares("a"), prepares("b", 0), unprepares("b"), sharesMPS("a", 0), unprepares("a"),
	}},
	{name: "a GPU for several programs of a claim", long: true, acts: []Act{prepares("a", 0).withMPS(), connects("a"), unprepares("a"), sharesMPS("b", 0), unprepares("b")}},
	{name: "a MIG device for several programs of a claim", acts: []Act{
		preparesMIG("a", large).withMPS(), connects("a"), preparesMIG("b", small), unprepares("a"), unprepares("b"),
	}},
	{name: "the mode is refused", long: true, refuse: map[string]int{"nvml.SetComputeMode": 1}, acts: []Act{sharesMPS("a", 0).failing(), sharesMPS("a", 0), unprepares("a")}},
	{name: "the daemon is refused", long: true, refuse: map[string]int{"mps.StartNew": 1}, acts: []Act{sharesMPS("a", 0).failing(), sharesMPS("a", 0), unprepares("a")}},
	{name: "the server is refused", long: true, refuse: map[string]int{"mps.Ensure": 1}, acts: []Act{sharesMPS("a", 0).failing(), sharesMPS("a", 0), unprepares("a")}},
	{name: "the server is refused to the next share", long: true, refuse: map[string]int{"mps.Ensure": 2}, acts: []Act{
		sharesMPS("a", 0), connects("a"), sharesMPS("b", 0).failing(), connects("a"), sharesMPS("b", 0), unprepares("a"), unprepares("b"),
	}},
	{name: "the mode cannot be restored at first", long: true, refuse: map[string]int{"nvml.SetComputeMode": 2}, acts: []Act{
		sharesMPS("a", 0), unprepares("a").failing(), sharesMPS("b", 0), unprepares("a"), unprepares("b"),
	}},
	{
		name: "an earlier process was killed before the daemon's answer", long: true, early: true, before: []Act{sharesMPS("b", 0)},
		then: killedIn("mps.Ensure", sharesMPS("a", 0)), interrupted: []Act{sharesMPS("a", 0)},
		acts: []Act{recovers, connects("b"), sharesMPS("a", 0), unprepares("b"), unprepares("a")},
	},
	{
		name: "an earlier process was killed at the last unprepare", long: true, before: []Act{sharesMPS("a", 0)},
		then: killedIn("mps.Stop", unprepares("a")), interrupted: []Act{unprepares("a")},
		acts: []Act{sharesMPS("b", 0), recovers, connects("b"), unprepares("a"), unprepares("b")},
	},
	{name: "a daemon dies", before: []Act{sharesMPS("a", 0)}, acts: []Act{daemonsDie, reconcilesMPS, connects("a"), unprepares("a")}},
	{name: "a daemon of two shares dies", long: true, acts: []Act{
		sharesMPS("a", 0), sharesMPS("b", 0), connects("a"), daemonsDie, reconcilesMPS, connects("a"), unprepares("a"), unprepares("b"),
	}},
	{name: "a daemon dies before an unprepare", long: true, acts: []Act{sharesMPS("a", 0), sharesMPS("b", 0), daemonsDie, unprepares("a"), reconcilesMPS, unprepares("b")}},
	{name: "a daemon dies before a prepare", acts: []Act{sharesMPS("a", 0), daemonsDie, sharesMPS("b", 0), connects("b"), unprepares("a"), unprepares("b")}},
	{name: "the service vanishes", acts: []Act{
		sharesMPS("a", 0), connects("a"), serviceVanishes, reconcilesMPS, connects("a"), serviceResumes, reconcilesMPS, connects("a"), unprepares("a"),
	}},
	{name: "processes of daemons are gone before the service is unavailable", acts: []Act{
		sharesMPS("a", 0), connects("a"), serviceVanishes, inspectsMPS, connects("a"), serviceResumes, reconcilesMPS, connects("a"), unprepares("a"),
	}},
	{name: "claims are unprepared while the service is gone", long: true, acts: []Act{
		sharesMPS("a", 0), sharesMPS("b", 0), serviceVanishes, unprepares("a"), reconcilesMPS, unprepares("b").failing(), serviceResumes, unprepares("b"),
	}},
	{name: "the service's pod is replaced while the last claim is unprepared", acts: []Act{
		sharesMPS("a", 0), connects("a"), serviceVanishes, unprepares("a").failing(), timePasses(3 * time.Minute), unprepares("a"), serviceResumes,
		sharesMPS("b", 0), connects("b"), unprepares("b"),
	}},
	{
		name: "an earlier process was killed after the daemon's first start, and the service does not answer", then: killedIn("disk.MakeDir mps", sharesMPS("a", 0)),
		interrupted: []Act{sharesMPS("a", 0)},
		acts: []Act{
			serviceInterrupted, unprepares("a").failing(), serviceResumes, unprepares("a"), sharesMPS("b", 0), connects("b"), unprepares("b"),
		},
	},
	{name: "the service is interrupted", long: true, acts: []Act{
		sharesMPS("a", 0), connects("a"), serviceInterrupted, sharesMPS("b", 0).failing(), unprepares("a").failing(), serviceResumes, unprepares("a"),
	}},
	{name: "the driver resets the mode", long: true, acts: []Act{sharesMPS("a", 0), modesReset, sharesMPS("b", 0), reconcilesMPS, connects("a"), unprepares("a"), unprepares("b")}},
	{name: "the driver is replaced", long: true, acts: []Act{sharesMPS("a", 0), driverReplaced, reconcilesMPS, connects("a"), driverReplaced, reconcilesMPS, unprepares("a")}},
	{
		name: "the driver is loaded again", long: true, racing: true, before: []Act{sharesMPS("a", 0), sharesMPS("b", 1)}, then: sharesAndDriverReloaded,
		acts: []Act{recovers, reconcilesMPS, sharesMPS("a", 0), connects("a"), unprepares("b"), unprepares("a")},
	},
	{
		name: "MPS shares after a reboot", before: []Act{sharesMPS("a", 0), sharesMPS("b", 0)}, then: reboots,
		acts: []Act{recovers, reconcilesMPS, sharesMPS("a", 0), connects("a"), unprepares("b"), unprepares("a")},
	},
	{
		name: "a record of a share is damaged", long: true, before: []Act{sharesMPS("a", 0), sharesMPS("b", 1)}, then: damages("a"),
		acts: []Act{recovers, reconcilesMPS, collectsGarbage, sharesMPS("a", 0), unprepares("a"), unprepares("b")},
	},
	{
		name: "the GPU is lost at the last unprepare", before: []Act{sharesMPS("a", 0), sharesMPS("b", 0)}, gpusLost: true,
		acts: []Act{connects("a"), unprepares("b"), unprepares("a").failing(), timePasses(3 * time.Minute), unprepares("a")},
	},
	{
		name: "a program does not exit", before: []Act{sharesMPS("a", 0), connects("a")}, then: stuck("a"),
		acts: []Act{unprepares("a").failing(), timePasses(3 * time.Minute), unprepares("a"), sharesMPS("b", 0), connects("b"), unprepares("b")},
	},
	{name: "a server cannot be killed", acts: []Act{
		sharesMPS("a", 0), serversHang, unprepares("a").failing(), timePasses(3 * time.Minute), unprepares("a"), sharesMPS("b", 0).failing(), serversExit,
		sharesMPS("b", 0), connects("b"), unprepares("b"),
	}},
	{name: "a process takes the limits away", acts: []Act{
		sharesMPS("a", 0), connects("a"), limitsTaken, reconcilesMPS, sharesMPS("b", 0), limitsTaken, unprepares("a"), reconcilesMPS, unprepares("b"),
	}},
	{name: "a driver whose server is that of one user", long: true, acts: []Act{
		driverSingleUser, sharesMPS("a", 0), connects("a"), reconcilesMPS, daemonsDie, reconcilesMPS, sharesMPS("b", 0), unprepares("a"), unprepares("b"),
	}},
}

// TestMPS_ProgramDoesNotExit_PIDsNamed: the reason of a GPU's taint names the processes that keep it.
func TestMPS_ProgramDoesNotExit_PIDsNamed(t *testing.T) {
	t.Parallel()
	m := newMPSMachine(t)
	m.setUp(t, &scenario{})
	m.inMachineTime(t, func(t *testing.T) {
		p, err := m.Start(t.Context(), Wiring{CleanupAfter: 2 * time.Minute})
		require.NoError(t, err)
		require.NoError(t, m.act(t.Context(), p, sharesMPS("a", 0)))
		require.NoError(t, m.act(t.Context(), p, connects("a")))
		m.parts.mps.stuck["a"] = true
		pids := m.parts.mps.connected("a")
		require.Len(t, pids, 1)
		require.ErrorContains(t, m.act(t.Context(), p, unprepares("a")), fmt.Sprintf("the pids [%d] on the host", pids[0]))
		m.Advance(3 * time.Minute)
		require.NoError(t, m.act(t.Context(), p, unprepares("a")))
		records, err := m.Records()
		require.NoError(t, err)
		require.NotNil(t, records["a"].PendingCleanup)
		require.Contains(t, records["a"].PendingCleanup.Cause, fmt.Sprintf("the pids [%d] on the host", pids[0]))
		require.NoError(t, p.Close())
	})
}

// stuck keeps the claim's programs from exiting, until the node is recovered.
func stuck(claim string) func(*testing.T, *Machine) {
	return func(_ *testing.T, m *Machine) { m.parts.mps.stuck[claim] = true }
}

// sharesAndDriverReloaded ends the control daemons and loads the driver again: it has forgotten the modes.
func sharesAndDriverReloaded(t *testing.T, m *Machine) {
	t.Helper()
	m.parts.mps.die()
	require.NoError(t, m.reloadDriver())
}

// recoverSharing lets the service answer again and programs exit, and then runs the first work of a leader on shared devices.
func (m *Machine) recoverSharing(ctx context.Context, p *Process) error {
	s := m.parts.mps
	if s == nil {
		return nil
	}
	s.ended = nil
	s.resume()
	s.exit()
	for claim := range s.stuck {
		delete(s.stuck, claim)
		s.disconnect(claim)
	}
	if err := m.reconcileMPS(ctx, p); err != nil {
		return err
	}
	return m.CheckInvariants(ctx)
}
