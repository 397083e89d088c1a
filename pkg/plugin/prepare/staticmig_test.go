package prepare

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestStaticDevice_Gone_NeverMade: an administrator or a reboot has removed it, its placement is advertised as one in which the plugin
// makes MIG devices, and claims of the removed device come back. They are refused until the administrator has made it again.
func TestStaticDevice_Gone_NeverMade(t *testing.T) {
	shared := func(uid string) *resourceapi.ResourceClaim { return wantsShare(uid, migName("19-6")) }
	alone := func(uid string) *resourceapi.ResourceClaim { return wantsOf(uid, "19-6") }
	for name, c := range map[string]struct {
		wants  func(uid string) *resourceapi.ResourceClaim
		reboot bool
		sees   bool // the inventory knows that it is gone
	}{
		"shared": {shared, false, true}, "exclusive": {alone, false, true},
		"shared, rebooted": {shared, true, true}, "exclusive, rebooted": {alone, true, true},
		"shared, not seen yet": {shared, false, false}, "exclusive, not seen yet": {alone, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w, c2 := newShared(true)
				p := c2.startWithMIG(t)
				p.mustPrepare(c.wants("a"))
				before := w.record(t, "a")
				c2.destroy(c.sees)
				if c.reboot {
					w.reboot("boot-2")
					p = c2.startWithMIG(t)
				}
				w.events()
				_, err := p.Prepare(t.Context(), c.wants("a"))
				require.ErrorIs(t, err, gpu.ErrNotFound)
				require.ErrorContains(t, err, `request "r0", device `+migName("19-6")+": MIG device MIG-7 is not on GPU "+string(uuid(0))+" any more")
				require.ErrorContains(t, err, "it was pre-created by an administrator of the node; nvidia-smi -L shows there the remaining devices (will be retried)")
				assert.Equal(t, before, w.record(t, "a"), "it keeps what it had")
				_, err = p.Prepare(t.Context(), c.wants("b"))
				require.Error(t, err, "nor is it made for another claim")
				if c.wants("b").Status.Allocation.Devices.Results[0].ShareID != nil {
					require.ErrorContains(t, err, " is not on GPU "+string(uuid(0))+" any more")
				}
				assert.Nil(t, w.record(t, "b"))
				assert.Zero(t, c2.made)
				assert.NotContains(t, w.events(), "make 19-6")

				c2.administer(7, "MIG-7", true)
				p.mustPrepare(c.wants("a"), "it is there again")
				require.NoError(t, p.Unprepare(t.Context(), "a"))
				assert.Equal(t, map[string]gpu.MIGUUID{migName("19-6"): "MIG-7"}, c2.there)
				w.clean(t)
			})
		})
	}
}

// TestStaticDevice_MadeAgainAfterAReboot_WaitsForTheInventory, in the same call.
func TestStaticDevice_MadeAgainAfterAReboot_WaitsForTheInventory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newShared(true)
		c.startWithMIG(t).mustPrepare(wantsOf("a", "19-6"))
		w.reboot("boot-2")
		c.destroy(true)
		c.administer(7, "MIG-7", false)
		p := c.startWithMIG(t)
		time.AfterFunc(10*time.Second, func() { c.administer(7, "MIG-7", true) })
		r := p.mustPrepare(wantsOf("a", "19-6"))
		assert.True(t, r.Results[0].MIG.Static)
		assert.Zero(t, c.made)
		require.Len(t, p.retrying, 1)
		assert.Contains(t, p.retrying[0], "MIG device MIG-7 is not advertised now; it was pre-created by an administrator")
	})
}

// TestStaticDevice_AnotherBesideIt_BothThere: a claim for several devices is not refused because of the devices that the plugin makes.
func TestStaticDevice_AnotherBesideIt_BothThere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newShared(true)
		p := c.startWithMIG(t)
		both := wantsOf("a", "19-6", "9-0")
		p.mustPrepare(both)
		delete(c.there, migName("9-0")) // as a driver that was loaded again leaves it
		r := p.mustPrepare(both)
		assert.Equal(t, gpu.MIGUUID("MIG-9-0"), r.Results[1].MIG.Identity.UUID)
		c.destroy(true)
		_, err := p.Prepare(t.Context(), both)
		require.ErrorContains(t, err, "MIG device MIG-7 is not on GPU")
		assert.Equal(t, r, w.record(t, "a"))
	})
}
