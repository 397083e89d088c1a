package publish_test

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

const byCapacityClass = "by-capacity.gpu.prism.dev"

// byCapacity requests one device with so much of a capacity of the driver's own domain.
func byCapacity(name, amount string) resourceapi.ExactDeviceRequest {
	r := request(byCapacityClass, 1)
	r.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
		resourceapi.QualifiedName(driverName + "/" + name): resource.MustParse(amount),
	}}
	return r
}

// newCapacityScheduler evaluates no CEL: an expression would need the cache that it lacks.
func newCapacityScheduler(t *testing.T, n *gpu.Node, layout gpu.Layout) *scheduler {
	t.Helper()
	s := newScheduler(t, poolsOf(n, layout))
	s.cache = nil
	return s
}

// everyWay advertises all GPUs whole, time-sliced and in every MIG profile.
func everyMode(n *gpu.Node) gpu.Layout {
	return timeSliced(n, 2, andWhole, func(o *gpu.Modes) { o.MIG = n.GPUs[0].MIG.ProfileNames() })
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,31}$`)

func TestProfileCapacity_KnownProfiles_AsDocumented(t *testing.T) {
	t.Parallel()
	for profile, want := range map[string]string{
		"1g.10gb": "p1g10gb", "1g.10gb+me": "p1g10gb_me", "2g.20gb+gfx": "p2g20gb_gfx", "1g.24gb-me": "p1g24gb_no_me",
		"1g.24gb+me.all": "p1g24gb_meall", "7g.80gb": "p7g80gb", "1c.3g.40gb": "p1c3g40gb",
		"": "", "+me": "", "1g.10gb+": "", "1g 10gb": "", "1g_10gb": "", "1g.10gb/x": "", "1g.10gbé": "", "1g.10gb+" + strings.Repeat("x", 25): "",
	} {
		assert.Equal(t, want, publish.ProfileCapacity(profile), profile)
	}
}

// TestProfileCapacity_AllProfiles_OneNameEach covers all boards, and each name of theirs with every suffix that the driver has.
func TestProfileCapacity_AllProfiles_OneNameEach(t *testing.T) {
	t.Parallel()
	of := map[string]string{}
	for _, board := range migBoards(t) {
		for _, p := range migOf(t, board).Profiles {
			plain, _, _ := strings.Cut(p.Name, "+")
			for _, profile := range append([]string{p.Name}, plain+"+me", plain+"-me", plain+"+me.all", plain+"+gfx", plain) {
				name := publish.ProfileCapacity(profile)
				assert.Regexp(t, identifier, name, profile)
				assert.Equal(t, profile, cmp.Or(of[name], profile), "%s means two profiles", name)
				of[name] = profile
			}
		}
	}
}

// TestByCapacity_Profile_AllocatesOnlyThat allocates as many devices as the class with a selector does, all of the profile, without CEL.
func TestByCapacity_Profile_AllocatesOnlyThat(t *testing.T) {
	t.Parallel()
	for _, board := range migBoards(t) {
		t.Run(board, func(t *testing.T) {
			t.Parallel()
			n := migNode(t, board, 2)
			for _, p := range n.GPUs[0].MIG.Profiles {
				s, selected := newCapacityScheduler(t, n, everyMode(n)), newScheduler(t, poolsOf(n, everyMode(n)))
				assert.Nil(t, s.allocate(byCapacity(publish.ProfileCapacity(p.Name), "2")), "a device is one")
				count := 0
				for got := s.allocate(byCapacity(publish.ProfileCapacity(p.Name), "1")); got != nil; count++ {
					assert.Equal(t, selected.allocate(request("mig.gpu.prism.dev", 1, profileIs(p.Name))), got, p.Name)
					assert.Contains(t, got[0], fmt.Sprintf("-mig-%d-", p.ID), p.Name)
					got = s.allocate(byCapacity(publish.ProfileCapacity(p.Name), "1"))
				}
				assert.Positive(t, count, p.Name)
				assert.Nil(t, selected.allocate(request("mig.gpu.prism.dev", 1, profileIs(p.Name))), p.Name)
			}
			assert.Nil(t, newCapacityScheduler(t, n, everyMode(n)).allocate(byCapacity("p9g999gb", "1")))
		})
	}
}

// capacityOf asks for a MIG device by the capacity of its profile.
func capacityOf(d gpu.Device) resourceapi.ExactDeviceRequest {
	mig, isMIG := d.(gpu.MIGDevice)
	if !isMIG {
		return classOf(d)
	}
	return byCapacity(publish.ProfileCapacity(mig.Profile.Name), "1")
}

// TestByCapacity_MIGMemory_LeastThatFits at each threshold of each board: the memory of a profile, and one byte more.
func TestByCapacity_MIGMemory_LeastThatFits(t *testing.T) {
	t.Parallel()
	for _, board := range migBoards(t) {
		n := migNode(t, board, 2)
		profiles := slices.Clone(n.GPUs[0].MIG.Profiles)
		// Of equal memory the fewest compute slices, then no media extensions.
		media := func(p gpu.MIGProfile) int { return len(p.Name) - len(strings.TrimSuffix(p.Name, "+me")) }
		slices.SortStableFunc(profiles, func(a, b gpu.MIGProfile) int {
			return cmp.Or(cmp.Compare(a.Capacity.MemoryBytes, b.Capacity.MemoryBytes), cmp.Compare(a.Slices, b.Slices), cmp.Compare(media(a), media(b)))
		})
		thresholds := []uint64{0, 1}
		for _, p := range profiles {
			thresholds = append(thresholds, p.Capacity.MemoryBytes, p.Capacity.MemoryBytes+1)
		}
		for _, wanted := range thresholds {
			s := newCapacityScheduler(t, n, everyMode(n))
			got := s.allocate(byCapacity(publish.CapMIGMemory, fmt.Sprint(wanted)))
			i := slices.IndexFunc(profiles, func(p gpu.MIGProfile) bool { return p.Capacity.MemoryBytes >= wanted })
			if i < 0 {
				assert.Nil(t, got, "%s, %d: more than any MIG device has", board, wanted)
				continue
			}
			require.Len(t, got, 1, "%s, %d", board, wanted)
			assert.Contains(t, got[0], fmt.Sprintf("-mig-%d-", profiles[i].ID), "%s, %d", board, wanted)
		}
	}
}

// TestByCapacity_NoMIGDevice_Waits: whole GPUs and time-sliced ones have enough memory and are not allocated.
func TestByCapacity_NoMIGDevice_Waits(t *testing.T) {
	t.Parallel()
	for _, board := range migBoards(t) {
		n := migNode(t, board, 2)
		s := newCapacityScheduler(t, n, timeSliced(n, 2, andWhole))
		assert.Nil(t, s.allocate(byCapacity(publish.CapMIGMemory, "1")), board)
		for _, p := range n.GPUs[0].MIG.Profiles {
			assert.Nil(t, s.allocate(byCapacity(publish.ProfileCapacity(p.Name), "1")), board)
		}
	}
}

// TestByCapacity_SharedStaticMIGDevice_OneShare: a claim takes one share of a device for several claims, whichever way it asks, and the
// requested part of its memory.
func TestByCapacity_SharedStaticMIGDevice_OneShare(t *testing.T) {
	t.Parallel()
	n, layout := sharedMIGDevice(t)
	name := func(start int) []string { return []string{fmt.Sprintf("gpu-%s-mig-9-%d", n.GPUs[0].ID, start)} }
	withCEL := newScheduler(t, nil)

	s := newCapacityScheduler(t, n, layout)
	assert.Equal(t, name(4), s.allocate(byCapacity("p3g40gb", "1")))
	s.cache = withCEL.cache
	assert.Equal(t, name(4), s.allocate(request("mig.gpu.prism.dev", 1)))
	assert.Equal(t, name(0), s.allocate(byCapacity("p3g40gb", "1")), "both shares are allocated; the other placement is for one claim")
	assert.Nil(t, s.allocate(byCapacity("p3g40gb", "1")))

	s = newCapacityScheduler(t, n, layout)
	assert.Nil(t, s.allocate(byCapacity("p3g40gb", "2")), "a claim is one share")
	assert.Equal(t, name(4), s.allocate(byCapacity(publish.CapMIGMemory, "30Gi")))
	assert.Equal(t, name(0), s.allocate(byCapacity(publish.CapMIGMemory, "30Gi")), "39.5 GiB have no room for two")
	assert.Equal(t, name(4), s.allocate(byCapacity(publish.CapMIGMemory, "9Gi")))
	assert.Nil(t, s.allocate(byCapacity(publish.CapMIGMemory, "1Gi")), "there is memory left and no share")
}
