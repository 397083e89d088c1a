package allocation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/podresources"
)

// claimsGate is the feature gate of kubelets that list claims, enabled by default since Kubernetes 1.34.
const claimsGate = "KubeletPodResourcesDynamicResources"

// uses are the containers with claims of this driver in the kubelet's list.
type uses struct {
	listed []podresources.Use
	// socket identifies the kubelet's socket at the last list; since is the time when it changed.
	socket string
	since  time.Time
	// claims is set if this kubelet has listed a claim of any driver.
	claims bool
	// reported is set after a missing claim was logged.
	reported bool
}

// take stores the kubelet's list. A kubelet that has just started discovers its pods gradually, so the list of the previous one stays valid
// for the time of grace.
func (u *uses) take(found podresources.Containers, socket string, now time.Time, grace time.Duration) {
	listed := found.Uses
	if socket != u.socket {
		u.socket, u.since, u.claims = socket, now, false
	}
	u.claims = u.claims || found.AnyClaim
	if now.Sub(u.since) < grace {
		again := map[string]bool{}
		for i := range listed {
			again[identity(&listed[i])] = true
		}
		for i := range u.listed {
			if !again[identity(&u.listed[i])] {
				listed = append(listed, u.listed[i])
			}
		}
	}
	u.listed = listed
}

// drop removes the containers of a claim and returns their names.
func (u *uses) drop(uid string) (dropped []name) {
	var kept []podresources.Use
	for _, use := range u.listed {
		if ofClaim(use, uid) {
			dropped = append(dropped, name{use.Namespace, use.Pod, use.Container})
		} else {
			kept = append(kept, use)
		}
	}
	u.listed = kept
	return dropped
}

// names are the names of the containers whose claim is recorded.
func (u *uses) names(found map[string]*checkpoint.Record) (names []name) {
	for uid := range found {
		for _, use := range u.listed {
			if ofClaim(use, uid) {
				names = append(names, name{use.Namespace, use.Pod, use.Container})
			}
		}
	}
	return names
}

// without returns the names without the others.
func without(names, others []name) []name {
	among := make(map[name]bool, len(others))
	for _, n := range others {
		among[n] = true
	}
	return slices.DeleteFunc(names, func(n name) bool { return among[n] })
}

// identity is a stable key for a container and its claim.
func identity(use *podresources.Use) string {
	return strings.Join(append([]string{use.Namespace, use.Pod, use.Container, use.Claim}, use.CDIDevices...), "/")
}

// ofOne are the containers of one claim.
func ofOne(listed []podresources.Use, uid string) (uses []podresources.Use) {
	for i := range listed {
		if ofClaim(listed[i], uid) {
			uses = append(uses, listed[i])
		}
	}
	return uses
}

// ofClaim reports whether a container uses this claim. Another claim of the same name allocates other devices, and a claim that is not
// prepared allocates none.
func ofClaim(use podresources.Use, uid string) bool {
	return slices.ContainsFunc(use.CDIDevices, func(device string) bool { return strings.HasPrefix(device, uid+"-") })
}

// hasResult reports whether a container of the claim may use this result: the kubelet lists either all devices of the claim, or the devices
// of the requests that the container names.
func hasResult(use podresources.Use, r *checkpoint.Result) bool {
	return len(use.Devices) == 0 || slices.ContainsFunc(use.Devices, func(d podresources.Device) bool {
		return d.Pool == r.Pool && d.Device == r.Device && (d.ShareID == "" || d.ShareID == r.ShareID)
	})
}

// followPods lists the kubelet's pods at every interval and after changes of records, until the context ends.
func (t *Tracker) followPods(ctx context.Context, changed <-chan struct{}) {
	every := time.NewTicker(t.schedule.pods)
	defer every.Stop()
	t.listPods(ctx)
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			if due == nil {
				due = time.After(t.schedule.listAfter)
			}
			continue
		case <-due:
			due = nil
		case <-every.C:
		}
		t.listPods(ctx)
	}
}

// listPods queries the kubelet once. Without an answer earlier information stays. Containers with a claim get an id as soon as they exist,
// even without a process on a GPU: only then can any other process be recognized as foreign.
func (t *Tracker) listPods(ctx context.Context) {
	socket, err := socketIdentity(t.paths.kubeletSocket)
	var listed podresources.Containers
	if err == nil {
		listed, err = t.pods.Containers(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		now := time.Now()
		t.mu.Lock()
		before := t.uses.names(t.records.found)
		t.uses.take(listed, socket, now, t.schedule.restarted)
		names := t.uses.names(t.records.found)
		err = errors.Join(t.claimsListed(ctx, now), tooMany(listed))
		t.mu.Unlock()
		// A pod that is gone may have been replaced by another pod of the same name that shares the claim.
		t.cri.exited(without(before, names))
		if t.cri.missing(names) {
			t.cri.ask(ctx, nil)
		}
		t.renew()
		if t.labels.read(ctx, names, t.cri.known()) {
			t.renew()
		}
	}
	t.sources.note(SourcePodResources, err)
}

// claimsListed returns an error if the kubelet lists no claim at all although claims are prepared: if its feature gate is disabled, it
// returns no error, and no container is named. The caller holds mu.
func (t *Tracker) claimsListed(ctx context.Context, now time.Time) error {
	if t.uses.claims || now.Sub(t.uses.since) < t.schedule.restarted {
		t.uses.reported = t.uses.reported && !t.uses.claims
		return nil
	}
	prepared := 0
	for uid, record := range t.records.found {
		if record.State == checkpoint.Done && now.Sub(t.since[uid]) >= t.schedule.restarted {
			prepared++
		}
	}
	if prepared == 0 {
		return nil
	}
	err := fmt.Errorf("the kubelet lists no claims of containers, but %d claims are prepared, so containers are not named: its feature gate %s may be disabled",
		prepared, claimsGate)
	if !t.uses.reported {
		klog.FromContext(ctx).Error(err, "Failed to find containers by their claims")
		t.uses.reported = true
	}
	return err
}

// tooMany returns an error if some containers are not named because there are too many.
func tooMany(listed podresources.Containers) error {
	if listed.Dropped == 0 {
		return nil
	}
	return fmt.Errorf("the kubelet lists more than %d containers with devices of this driver: %d containers of the claims with the most containers are not named; "+
		"use the claim in fewer containers", podresources.MaxContainers, listed.Dropped)
}

// socketIdentity identifies a socket: every start of the kubelet creates another one at the same path.
func socketIdentity(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("the kubelet's pod resources: %w", err)
	}
	system, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&fs.ModeSocket == 0 {
		return "", fmt.Errorf("the kubelet's pod resources: %s is not a socket", path)
	}
	return fmt.Sprintf("%d/%d/%s", system.Dev, system.Ino, info.ModTime()), nil
}
