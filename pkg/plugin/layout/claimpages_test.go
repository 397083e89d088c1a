package layout

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// untilListed lets time pass until so many pages were read.
func (d *fixture) untilListed(t *testing.T, pages int) {
	t.Helper()
	for range time.Minute / (50 * time.Millisecond) {
		if d.listed >= pages {
			return
		}
		after(50 * time.Millisecond)
	}
	require.GreaterOrEqual(t, d.listed, pages)
}

// paged splits the list of the desk's claims into so many pages. Page number holder contains a claim for the whole first GPU; with zero, no
// page does.
func (d *fixture) paged(t *testing.T, pages, holder int) (queries *[]kube.AllocatedQuery) {
	t.Helper()
	queries = &[]kube.AllocatedQuery{}
	d.options.API.Allocated = func(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error) {
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
		assert.Equal(t, []string{"n0", first}, d.advertised(t), "a claim of another page may have it")
		after(time.Minute)
		assert.Equal(t, []string{ownPool, small6, big}, d.advertised(t))
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
		assert.Equal(t, []string{"n0", first}, d.advertised(t))
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
		d.options.API.Allocated = func(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error) {
			d.listed++
			limits, last = append(limits, query.Limit), last+query.Limit
			page := &kube.AllocatedPage{Remaining: max(0, claims-last)}
			if page.Remaining > 0 {
				page.Continue = "more"
			}
			return page, ctx.Err()
		}
		after(5 * time.Minute)
		assert.Equal(t, []string{ownPool, small6, big}, d.advertised(t), "before the API server forgets where the list goes on")
		assert.LessOrEqual(t, len(limits), pagesMost)
		assert.Equal(t, int64(pageClaims), limits[0])
	})
}

// TestClaimList_PageFails_BeginsAgain: a list that the API server does not know any more cannot be continued.
func TestClaimList_PageFails_BeginsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		queries := d.paged(t, 3, 0)
		read := d.options.API.Allocated
		d.options.API.Allocated = func(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error) {
			page, err := read(ctx, query)
			if d.listed == 3 {
				return nil, errLater
			}
			return page, err
		}
		d.untilListed(t, 5)
		assert.Equal(t, []string{"n0", first}, d.advertised(t))
		after(time.Minute)
		assert.Equal(t, []string{ownPool, small6, big}, d.advertised(t))
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
		d.options.API.Allocated = func(ctx context.Context, _ kube.AllocatedQuery) (*kube.AllocatedPage, error) {
			d.listed++
			<-ctx.Done()
			return nil, ctx.Err()
		}
		d.untilListed(t, 1)
		d.entries = onlyWhole
		d.Reload()
		after(pageTimeout + roundInterval)
		assert.Zero(t, d.now().Status.Changing)
		assert.Equal(t, 1, d.listed)
	})
}

// TestClaimList_SituationChangesMeanwhile_LayoutStays: the answer is one to a question of before.
func TestClaimList_SituationChangesMeanwhile_LayoutStays(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(t *testing.T, d *fixture){
		"another process leads": func(_ *testing.T, d *fixture) { d.Lead(false) },
		"a claim was prepared":  func(_ *testing.T, d *fixture) { d.records = append(d.records, holds("n0", first)) },
		"the driver went": func(t *testing.T, d *fixture) {
			d.machine.Change(t, d.options.Inventory, func() { d.machine.Gone = gpu.ErrDriverNotLoaded })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, stop := turned(t)
				defer stop()
				d.paged(t, 1, 0)
				read := d.options.API.Allocated
				d.options.API.Allocated = func(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error) {
					page, err := read(ctx, query)
					if d.listed == 1 {
						meanwhile(t, d)
					}
					return page, err
				}
				d.untilListed(t, 1)
				assert.Equal(t, gpu.Modes{Whole: true}, d.saved.layout[firstUUID])
				after(3 * time.Minute)
				assert.Equal(t, gpu.Modes{Whole: true}, d.saved.layout[firstUUID])
				assert.Equal(t, 1, d.listed)
			})
		})
	}
}

// TestClaimList_ChangeReplaced_OthersComplete: the list was not read for the other change, even if the taints of that change are old enough
// when the list ends.
func TestClaimList_ChangeReplaced_OthersComplete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pages = 4
		d := opened(t, onlyWhole)
		stop := d.runs(t)
		defer stop()
		d.paged(t, pages, 0)
		d.entries = partitionedAndShared
		d.Reload()
		d.untilListed(t, 1)
		d.entries = `[{select: {indices: [0]}, modes: [mig], mig: {profiles: [3g.40gb]}}, {modes: [timeslice], timeSlice: {replicas: 2}}]`
		d.Reload()
		d.untilListed(t, pages)
		after(pageInterval / 2)
		assert.Equal(t, []string{"timeslice"}, d.others(t))
		assert.Equal(t, []string{"n0", first}, d.advertised(t))
		after(time.Minute)
		assert.Zero(t, d.now().Status.Changing)
		assert.Equal(t, 2*pages, d.listed)
	})
}

// TestComplete_TaintsWentAndCame_LayoutStays: a scheduler may have allocated the leaving devices while they were not tainted.
func TestComplete_TaintsWentAndCame_LayoutStays(t *testing.T) {
	t.Parallel()
	for name, vanish := range map[string]bool{"they stayed": false, "they went and came": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := opened(t, onlyWhole)
				d.Lead(true)
				d.entries = onlyMIG
				require.True(t, d.load(t))
				stored := map[gpu.PoolDevice]bool{wholeOfFirst: true}
				d.write(func(w *worker) {
					r := w.state.rollout
					r.Tainted(stored, true, time.Now())
					time.Sleep(taintTime)
					list := w.drain.pages.begin(r, []gpu.UUID{firstUUID}, time.Now())
					assert.True(t, list.add(&kube.AllocatedPage{}))
					if vanish {
						r.Tainted(map[gpu.PoolDevice]bool{wholeOfFirst: false}, true, time.Now())
						r.Tainted(stored, true, time.Now())
						time.Sleep(taintTime)
					}
					changed, err := w.drain.complete(list)
					assert.NoError(t, err)
					assert.Equal(t, !vanish, changed)
				})
			})
		})
	}
}
