package driver

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/kube"
)

// untilListed lets time pass until so many pages were read.
func (d *desk) untilListed(t *testing.T, pages int) {
	t.Helper()
	for range time.Minute / (50 * time.Millisecond) {
		if d.listed >= pages {
			return
		}
		after(50 * time.Millisecond)
	}
	require.GreaterOrEqual(t, d.listed, pages)
}

// paged makes the desk's claims a list of so many pages, of which one has a claim with the whole first GPU; none has where that is zero.
func (d *desk) paged(t *testing.T, pages, holder int) (queries *[]kube.AllocatedQuery) {
	t.Helper()
	queries = &[]kube.AllocatedQuery{}
	d.ports.Allocated = func(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error) {
		d.listed++
		*queries = append(*queries, query)
		at := 1
		if query.Continue != "" {
			var err error
			at, err = strconv.Atoi(query.Continue)
			require.NoError(t, err)
		}
		page := &kube.AllocatedPage{Devices: map[gpu.PoolDevice]bool{}, Remaining: int64(pages-at) * pageClaims}
		if at < pages {
			page.Continue = strconv.Itoa(at + 1)
		}
		if at == holder && query.Devices[wholeOfFirst] {
			page.Devices[wholeOfFirst] = true
		}
		return page, ctx.Err()
	}
	return queries
}

func TestClaimList_SeveralPages_IsReadToItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		queries := d.paged(t, 3, 0)
		d.untilListed(t, 2)
		assert.Equal(t, []string{"n0", first}, d.offered(t), "a claim of another page may have it")
		after(time.Minute)
		assert.Equal(t, []string{ownPool, oneSlice, big}, d.offered(t))
		require.Len(t, *queries, 3)
		for i, query := range *queries {
			assert.Equal(t, map[gpu.PoolDevice]bool{wholeOfFirst: true}, query.Devices, "nothing else is kept")
			assert.Equal(t, int64(pageClaims), query.Limit)
			assert.Equal(t, []string{"", "2", "3"}[i], query.Continue)
		}
	})
}

func TestClaimList_HolderOnALaterPage_KeepsTheGPU(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		queries := d.paged(t, 4, 2)
		d.untilListed(t, 3)
		after(pageInterval)
		assert.Equal(t, []string{"n0", first}, d.offered(t))
		assert.Empty(t, (*queries)[2].Continue, "pages after the answer are not read")
	})
}

func TestClaimList_ManyClaims_TakesNoMoreThanFortyPages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		const claims = 100_000
		var limits []int64
		var last int64
		d.ports.Allocated = func(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error) {
			d.listed++
			limits, last = append(limits, query.Limit), last+query.Limit
			page := &kube.AllocatedPage{Remaining: max(0, claims-last)}
			if page.Remaining > 0 {
				page.Continue = "more"
			}
			return page, ctx.Err()
		}
		after(5 * time.Minute)
		assert.Equal(t, []string{ownPool, oneSlice, big}, d.offered(t), "before the API server forgets where the list goes on")
		assert.LessOrEqual(t, len(limits), pagesMost)
		assert.Equal(t, int64(pageClaims), limits[0])
	})
}

// TestClaimList_PageFails_BeginsAgain: a list that the API server does not know any more has no next page.
func TestClaimList_PageFails_BeginsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		queries := d.paged(t, 3, 0)
		read := d.ports.Allocated
		d.ports.Allocated = func(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error) {
			page, err := read(ctx, query)
			if d.listed == 3 {
				return nil, errLater
			}
			return page, err
		}
		d.untilListed(t, 5)
		assert.Equal(t, []string{"n0", first}, d.offered(t))
		after(time.Minute)
		assert.Equal(t, []string{ownPool, oneSlice, big}, d.offered(t))
		require.Len(t, *queries, 6)
		assert.Empty(t, (*queries)[3].Continue)
	})
}

// TestClaimList_PageNeverEnds_IsGivenUp, so that the configuration is read all the same.
func TestClaimList_PageNeverEnds_IsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		d.ports.Allocated = func(ctx context.Context, _ kube.AllocatedQuery) (*kube.AllocatedPage, error) {
			d.listed++
			<-ctx.Done()
			return nil, ctx.Err()
		}
		d.untilListed(t, 1)
		d.entries = onlyWhole
		d.Reload()
		after(pageTimeout + rereadMax)
		assert.Zero(t, d.Changing())
		assert.Equal(t, 1, d.listed)
	})
}

// TestClaimList_WhatItWasReadForChanges_SettlesNothing: the answer is one to a question of before.
func TestClaimList_WhatItWasReadForChanges_SettlesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, d *desk)
		// again is whether the GPU changes to what is wanted then, after another question.
		again bool
	}{
		"another configuration was read": {func(t *testing.T, d *desk) {
			d.entries = turns
			assert.True(t, d.Load(t.Context()))
		}, true},
		"another process leads": {func(_ *testing.T, d *desk) { d.Lead(false) }, false},
		"the taints are gone": {func(t *testing.T, d *desk) {
			d.untainted = true
			assert.NoError(t, d.look(t.Context()))
		}, false},
		"the taints went and came": {func(t *testing.T, d *desk) {
			d.untainted = true
			assert.NoError(t, d.look(t.Context()))
			d.untainted = false
			assert.NoError(t, d.look(t.Context()))
		}, true},
		"a claim was prepared": {func(_ *testing.T, d *desk) { d.records = append(d.records, holds("n0", first)) }, false},
		"the GPU went": {func(t *testing.T, d *desk) {
			d.machine.change(t, d.ports.Inventory, func() { d.machine.gpus = d.machine.gpus[1:] })
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, stop := turned(t)
				defer stop()
				d.paged(t, 1, 0)
				read := d.ports.Allocated
				d.ports.Allocated = func(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error) {
					page, err := read(ctx, query)
					if d.listed == 1 {
						c.meanwhile(t, d)
					}
					return page, err
				}
				d.untilListed(t, 1)
				assert.Equal(t, gpu.Offer{Whole: true}, d.saved.layout[firstUUID])
				after(3 * time.Minute)
				if !c.again {
					assert.Equal(t, gpu.Offer{Whole: true}, d.saved.layout[firstUUID])
					assert.Equal(t, 1, d.listed)
					return
				}
				assert.NotEqual(t, gpu.Offer{Whole: true}, d.saved.layout[firstUUID])
				assert.LessOrEqual(t, d.listed, 2)
			})
		})
	}
}

// TestClaimList_OneOfItsChangesIsAnother_SettlesTheOthers: the list does not know what the other change needs, also where its own taints
// are old enough when the list ends.
func TestClaimList_OneOfItsChangesIsAnother_SettlesTheOthers(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(t *testing.T, d *desk){
		"another configuration was read": func(_ *testing.T, d *desk) {
			d.entries = `[{select: {indices: [0]}, modes: [mig], mig: {profiles: [3g.40gb]}}, {modes: [timeslice], timeSlice: {replicas: 2}}]`
			d.Reload()
		},
		"its taints went and came": func(t *testing.T, d *desk) {
			for _, d.untainted = range []bool{true, false} {
				assert.NoError(t, d.look(t.Context()))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const pages = 4
				d := opened(t, onlyWhole)
				stop := d.runs(t)
				defer stop()
				d.paged(t, pages, 0)
				d.entries = slicesAndTurns
				d.Reload()
				d.untilListed(t, 1)
				meanwhile(t, d)
				d.untilListed(t, pages)
				after(pageInterval / 2)
				assert.Equal(t, []string{"timeslice"}, d.others(t))
				assert.Equal(t, []string{"n0", first}, d.offered(t))
				after(time.Minute)
				assert.Zero(t, d.Changing())
				assert.Equal(t, 2*pages, d.listed)
			})
		})
	}
}
