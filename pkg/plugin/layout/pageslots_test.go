package layout

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

func TestPageSlot_AnyMoment_IsTheNodesNextOne(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 22, 9, 0, 0, 123, time.UTC)
	slot := pageSlot("n0", start)
	for _, passed := range []time.Duration{0, 1, time.Second, slot.Sub(start) - 1} {
		assert.Equal(t, slot, pageSlot("n0", start.Add(passed)))
	}
	assert.Equal(t, slot.Add(pageInterval), pageSlot("n0", slot), "not twice at one")
	assert.Equal(t, slot.Add(1000*pageInterval), pageSlot("n0", start.Add(1000*pageInterval)), "also after a restart")
	assert.NotEqual(t, slot, pageSlot("n1", start))
	assert.True(t, slot.After(start) && !slot.After(start.Add(pageInterval)))
}

// pageCounter is an API server with claims that counts the pages which are read in each second.
type pageCounter struct {
	mu       sync.Mutex
	pages    int
	bySecond map[int64]int
	whole    int // lists that were read to their ends
}

func (p *pageCounter) read(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bySecond[time.Now().Unix()]++
	at, _ := strconv.Atoi(query.Continue)
	page := &kube.AllocatedPage{Remaining: int64(p.pages-at-1) * pageClaims}
	if at+1 < p.pages {
		page.Continue = strconv.Itoa(at + 1)
	} else {
		p.whole++
	}
	return page, ctx.Err()
}

// most is the largest number of pages in a second, all their sum.
func (p *pageCounter) most() (most, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.bySecond {
		most, all = max(most, n), all+n
	}
	return most, all
}

// manyNodes are nodes of one cluster, each of which has read that the layout of its GPUs is to change.
func manyNodes(t *testing.T, nodes int, server *pageCounter) (fixtures []*fixture, stop func()) {
	t.Helper()
	var stops []func()
	for i := range nodes {
		d := newFixture(t, onlyWhole)
		name := fmt.Sprintf("gpu-node-%04d", i)
		d.options.API.Allocated, d.worker.drain.pages.node = server.read, name
		d.worker.state.config.rereads.wait = newConfiguration(name, nil).rereads.wait
		d.options.API.Tainted = func(ctx context.Context) (map[gpu.PoolDevice]bool, error) {
			return map[gpu.PoolDevice]bool{wholeOfFirst: true}, ctx.Err()
		}
		assert.True(t, d.load(t))
		_ = d.advertised(t)
		fixtures, stops = append(fixtures, d), append(stops, d.runs(t))
	}
	return fixtures, func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// shareOfASecond is the number of 1,000 nodes that may read a page in one second. Names are spread as if by chance, so some seconds get
// more than their share.
const shareOfASecond = 1000 / int(pageInterval/time.Second) * 5 / 4

// TestReload_ThousandNodes_ReadSpread: all nodes see an edit at once, and read the configuration within the longest wait that is documented.
func TestReload_ThousandNodes_ReadSpread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const nodes = 1000
		fixtures, stop := manyNodes(t, nodes, &pageCounter{})
		defer stop()
		bySecond, at := map[time.Duration]int{}, time.Now()
		var mu sync.Mutex
		for _, d := range fixtures {
			read := d.options.Config.Read
			d.options.Config.Read = func(ctx context.Context) (*v1alpha1.NodeConfig, error) {
				mu.Lock()
				bySecond[time.Since(at).Truncate(time.Second)]++
				mu.Unlock()
				return read(ctx)
			}
			d.Reload()
			d.Reload()
		}
		after(debounce + pageInterval)
		all, most := 0, 0
		for _, n := range bySecond {
			all, most = all+n, max(most, n)
		}
		assert.Equal(t, nodes, all, "each once")
		assert.LessOrEqual(t, most, shareOfASecond)
	})
}

// TestReload_EditsGoOn_ChangeGoesOn: a GPU whose layout changes does not wait for further edits, however often these are made.
func TestReload_EditsGoOn_ChangeGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		for range int((taintTime + 3*drainInterval + pageInterval) / (100 * time.Millisecond)) {
			d.Reload()
			after(100 * time.Millisecond)
		}
		assert.Equal(t, []string{ownPool, small6, big}, d.advertised(t))
	})
}

// TestClaimPages_ThousandNodes_AreSpread when a job ends that held the GPUs of all of them.
func TestClaimPages_ThousandNodes_AreSpread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const nodes, pages = 1000, 4
		server := &pageCounter{pages: pages, bySecond: map[int64]int{}}
		fixtures, stop := manyNodes(t, nodes, server)
		defer stop()
		held := []*checkpoint.Record{holds("n0", first)}
		for _, d := range fixtures {
			d.records, d.entries = held, onlyMIG
			d.Reload()
		}
		after(2 * taintTime)
		_, all := server.most()
		assert.Zero(t, all, "records say enough")
		for _, d := range fixtures {
			d.records = nil
		}
		after((pages+1)*pageInterval + drainInterval)
		most, all := server.most()
		t.Logf("%d pages, at most %d in a second", all, most)
		assert.LessOrEqual(t, most, shareOfASecond)
		assert.Equal(t, nodes*pages, all)
		assert.Equal(t, nodes, server.whole)
		for _, d := range fixtures {
			assert.Zero(t, d.now().Status.Changing)
		}
	})
}

// TestClaimPages_ThousandBusyNodes_StaySpread after an edit, while they ask again and again, and when all of them receive another edit.
func TestClaimPages_ThousandBusyNodes_StaySpread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const nodes = 1000
		server := &pageCounter{pages: 1, bySecond: map[int64]int{}}
		fixtures, stop := manyNodes(t, nodes, server)
		defer stop()
		for _, d := range fixtures {
			d.options.API.Allocated = func(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error) {
				page, err := server.read(ctx, query)
				page.Devices = query.Devices
				return page, err
			}
			d.entries = onlyMIG
			d.Reload()
		}
		after(35 * time.Second)
		for _, d := range fixtures {
			d.Reload()
		}
		after(20 * time.Second)
		most, all := server.most()
		t.Logf("%d pages, at most %d in a second", all, most)
		assert.LessOrEqual(t, most, shareOfASecond)
		assert.GreaterOrEqual(t, all, nodes*5)
	})
}
