package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

const profiledClaim, otherProfiledClaim = "7f0c1d2e-0000-4000-8000-00000000000a", "7f0c1d2e-0000-4000-8000-00000000000b"

// Actions beside the plugin's calls: the importer's, and the background work of the plugin, which stores reports.
var importsRaw, storesReports = Act{Call: "import"}, Act{Call: "store"}

// records returns an act: a process of the claim ran under Nsight Systems.
func records(claim string) Act { return Act{Call: "record", Claim: claim} }

// recordsRanges returns an act: three ranges of a process were recorded.
func recordsRanges(claim string) Act { return Act{Call: "record", Claim: claim, Ranges: 3} }

// counting has the performance counters of the claim's GPUs recorded. Nothing runs in its containers.
func (a Act) counting() Act {
	a.Counting = true
	return a.withCounters(a.GPUs...)
}

// begins returns an act: a process starts and keeps running.
func begins(claim string) Act { return Act{Call: "begin", Claim: claim} }

// stores returns an act: the background work after a process of the claim ran.
func stores(claim string) Act { return Act{Call: "store", Claim: claim} }

// fills returns an act: a container of the claim fills its inbox; the claim may store less.
func fills(claim string) Act { return Act{Call: "fill", Claim: claim} }

// limited is how long a full inbox may stay full.
var limited = Act{Call: "pass", For: limitTime}

// commanded returns the acts of a command: the claim's process gets and answers it, and its file is removed.
func commanded(claim string, verb v1alpha1.SessionVerb) []Act {
	return []Act{{Call: "command", Claim: claim, Verb: verb}, {Call: "answer", Claim: claim, Verb: verb}, storesReports}
}

var profileScenarios = []scenario{
	{
		name: "a process that is recorded by hand", profiled: true,
		acts: slices.Concat(
			[]Act{prepares(profiledClaim, 0).byHand(), {Call: "waits", Claim: profiledClaim}},
			commanded(profiledClaim, v1alpha1.SessionStart), commanded(profiledClaim, v1alpha1.SessionStop),
			[]Act{stores(profiledClaim), importsRaw, storesReports, unprepares(profiledClaim), storesReports},
		),
	},
	{
		name: "a profile", profiled: true, early: true,
		acts: []Act{
			prepares(profiledClaim, 0).profiling(), records(profiledClaim), stores(profiledClaim), importsRaw, storesReports,
			prepares(profiledClaim, 0).profiling(), unprepares(profiledClaim), storesReports,
		},
	},
	{
		name: "counters of a GPU", profiled: true,
		acts: []Act{
			prepares(profiledClaim, 0).counting(), records(profiledClaim), stores(profiledClaim), importsRaw, storesReports,
			prepares(profiledClaim, 0).counting(), unprepares(profiledClaim), storesReports,
		},
	},
	{
		name: "counters of a GPU, stored after their claim", profiled: true,
		acts: []Act{
			prepares(profiledClaim, 0).counting(), records(profiledClaim), unprepares(profiledClaim), stores(profiledClaim), importsRaw, storesReports,
		},
	},
	{
		name: "a profile beside an effect and a claim without one", profiled: true,
		acts: []Act{
			prepares(profiledClaim, 0).with().profiling(), prepares("b", 1).with(), records(profiledClaim), unprepares(profiledClaim), unprepares("b"),
			stores(profiledClaim), importsRaw, storesReports,
		},
	},
	{
		name: "a profile of two claims without reports", profiled: true, long: true, racing: true,
		acts: []Act{
			prepares(profiledClaim, 0).profiling(), prepares(otherProfiledClaim, 1).profiling(), unprepares(profiledClaim), storesReports,
			prepares(profiledClaim, 0).profiling(), unprepares(otherProfiledClaim), unprepares(profiledClaim), storesReports,
		},
	},
	{
		name: "a profile that is being recorded", profiled: true,
		acts: []Act{
			prepares(profiledClaim, 0).profiling(), begins(profiledClaim), storesReports, records(profiledClaim), stores(profiledClaim),
		},
	},
	{
		name: "a profile of several ranges", profiled: true,
		acts: []Act{
			prepares(profiledClaim, 0).profiling(), recordsRanges(profiledClaim), stores(profiledClaim), importsRaw, storesReports,
			unprepares(profiledClaim), storesReports,
		},
	},
	{
		name: "a profile whose process was killed", profiled: true,
		acts: []Act{
			prepares(profiledClaim, 0).profiling(), begins(profiledClaim), storesReports, unprepares(profiledClaim), storesReports,
		},
	},
	{
		name: "a container fills its inbox", profiled: true,
		acts: []Act{
			prepares(profiledClaim, 0).profiling(), fills(profiledClaim), storesReports, limited, storesReports, records(profiledClaim),
			stores(profiledClaim), limited, storesReports, unprepares(profiledClaim), storesReports,
		},
	},
	{
		name: "a second profile beside the first", profiled: true,
		acts: []Act{
			prepares(profiledClaim, 0).profiling(), storesReports, prepares(otherProfiledClaim, 1).profiling(), unprepares(profiledClaim),
			records(otherProfiledClaim), stores(otherProfiledClaim), importsRaw, storesReports, unprepares(otherProfiledClaim),
		},
	},
	{
		name: "the folder of a profile cannot be made at first", profiled: true, refuse: map[string]int{"disk.MakeDir profile's inbox": 1},
		acts: []Act{prepares(profiledClaim, 0).profiling().failing(), prepares(profiledClaim, 0).profiling(), unprepares(profiledClaim)},
	},
	{
		name: "a report cannot be stored at first", profiled: true, refuse: map[string]int{"disk.Create profile's spool": 1},
		acts: []Act{
			prepares(profiledClaim, 0).profiling(), records(profiledClaim), storesReports, stores(profiledClaim), unprepares(profiledClaim),
		},
	},
}

// checkReports checks that the reports of a process outlive its claim, its pod and any number of plugins, and are removed after their
// retention. cut: only stored data outlives a power cut.
func (m *Machine) checkReports(ctx context.Context, p *Process, claims map[string]*claimState, cut bool) error {
	if !m.profiled {
		return nil
	}
	for range 2 {
		if err := m.storeReports(ctx, p); err != nil {
			return err
		}
		if err := m.imports(); err != nil {
			return err
		}
	}
	for uid, k := range claims {
		if err := m.hasReport(p, uid, k, cut); err != nil {
			return err
		}
	}
	m.Advance(2 * retention)
	defer m.Advance(-2 * retention)
	for range 2 {
		if err := m.storeReports(ctx, p); err != nil {
			return err
		}
	}
	left, err := disk.OS{}.List(m.settings().ProfilesDir())
	if err == nil && len(left) > 0 {
		return fmt.Errorf("%v is left of profiles", left)
	}
	return errors.Join(err, m.nothingCollected())
}

// hasReport checks that a claim has one report of its process, or one of each range, and none if none was recorded.
func (m *Machine) hasReport(p *Process, uid string, k *claimState, cut bool) error {
	found := p.reportsOf(uid)
	if !k.recorded && len(found) == 0 || len(found) == 0 && cut && !k.stored {
		return nil
	}
	all, want := k.recorded && (k.stored || !cut), max(k.ranges, 1)
	// A power cut may have removed some of the files that the process had left.
	if few := len(found) < want && (all || len(found) == 0); few || len(found) > want {
		return fmt.Errorf("claim %s: reports %v, recorded %t, stored %t, ranges %d", uid, found, k.recorded, k.stored, k.ranges)
	}
	for _, r := range found {
		if err := isFinal(uid, r, all); err != nil {
			return err
		}
	}
	return m.reportsAreWhole()
}

// isFinal checks that a report of a claim that is gone is final, and that a report that must exist was imported.
func isFinal(uid string, r report.Report, must bool) error {
	if !r.State.Final() {
		return fmt.Errorf("claim %s is gone, and its report is still %s", uid, r.State)
	}
	if whole := r.State == report.Ready && r.Size == int64(len(imported)); !whole && must {
		return fmt.Errorf("claim %s recorded its process, and its report is %+v", uid, r)
	}
	return nil
}

// reportsOf returns the reports of a claim.
func (p *Process) reportsOf(uid string) []report.Report {
	return slices.DeleteFunc(reportsOf(p.Plugin).List("", ""), func(r report.Report) bool { return r.ClaimUID != uid })
}
