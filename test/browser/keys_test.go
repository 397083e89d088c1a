package browser_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
)

const focused = "document.activeElement.id"

// active is the node and the column of the active cell, as screen readers find it.
const active = `(() => {
  const cell = document.getElementById(document.querySelector('#grid').getAttribute('aria-activedescendant'));
  return cell ? cell.closest('[data-node]').dataset.node + ' ' + cell.dataset.column + ' ' + cell.getAttribute('aria-selected') : 'none';
})()`

func TestKeys_Alone_ReachEverything(t *testing.T) {
	t.Parallel()
	p := open(t, serve(t, cluster(t, 40, 6)).url, 1360, 800)
	p.press(kb.ArrowDown)
	p.wait(focused + " === 'grid'")
	assert.Equal(t, "gpu-a00 0 true", p.text(active))
	p.press(kb.ArrowRight + kb.ArrowRight + kb.ArrowDown)
	assert.Equal(t, "gpu-a00 6 true", p.text(active), "the GPU below, in the same node")
	p.press(kb.ArrowDown + kb.ArrowLeft)
	assert.Equal(t, "gpu-a01 1 true", p.text(active))
	assert.NotEqual(t, "none", p.text("getComputedStyle(document.querySelector('#active-cell')).boxShadow"), "the active cell is visible")

	p.press(kb.Enter)
	p.wait(focused + " === 'details'")
	assert.Contains(t, p.text("document.querySelector('#details').textContent"), "index 0 of gpu-a01")
	p.press(kb.Escape)
	p.wait(focused + " === 'grid' && document.querySelector('#details').hidden")
	assert.Equal(t, "gpu-a01 1 true", p.text(active), "the cell stays active")

	p.press(kb.End)
	assert.Equal(t, "gpu-a01 8 true", p.text(active))
	p.press(strings.Repeat(kb.PageDown, 30))
	assert.Contains(t, p.text(active), "gpu-a39")
	p.press(strings.Repeat(kb.PageUp, 30) + kb.Home)
	assert.Equal(t, "gpu-a00 0 true", p.text(active))
	p.press(kb.Enter)
	p.wait("document.querySelector('#details h2').textContent === 'gpu-a00'")
	p.press(kb.Escape)

	p.press("/")
	p.wait(focused + " === 'query'")
	p.press("node:a03")
	p.wait("document.querySelectorAll('.node').length === 1")
	assert.Equal(t, "1 of 40 nodes", p.text("document.querySelector('#news').textContent"), "the live region has the result")
	assert.Contains(t, p.text("location.hash"), "a03", "the address keeps the filter")
	p.press(kb.ArrowDown)
	p.wait(focused + " === 'grid'")
	assert.Equal(t, "gpu-a03 0 true", p.text(active))
	p.press("/" + kb.Escape)
	p.wait("document.querySelectorAll('.node').length > 1")
	assert.Empty(t, p.text("document.querySelector('#query').value"))

	p.press(kb.Escape)
	p.press("p" + kb.ArrowDown)
	p.wait(focused + " === 'pods'")
	p.press(kb.Enter)
	p.wait("document.querySelector('#details .sentence')")
	details := p.text("document.querySelector('#details').textContent")
	for _, part := range []string{"No node has a free device", "InUse", "web/rank-x2", "request 2g.20gb: 17 free now", "any 1 of 3 alike", "memory slices 0–3"} {
		assert.Contains(t, details, part)
	}
	p.press(kb.Escape)
	p.wait(focused + " === 'pods'")
	assert.Contains(t, p.text("document.querySelector('#active-pod').textContent"), "No node has a free device", "the list keeps the sentence")

	p.press("?")
	p.wait("document.querySelector('#help').open")
	p.press(kb.Escape)
	p.wait("!document.querySelector('#help').open")
	p.press("n")
	p.wait(focused + " === 'grid'")
}

// TestKeys_Tab_VisibleFocusAndNames: every control is reached, named, and marked when it has the focus.
func TestKeys_Tab_VisibleFocusAndNames(t *testing.T) {
	t.Parallel()
	p := open(t, serve(t, cluster(t, 4, 2)).url, 1360, 800)
	seen := map[string]bool{}
	for range 14 {
		p.press(kb.Tab)
		id := p.text("document.activeElement.id || document.activeElement.textContent")
		seen[id] = true
		if id == "" || p.text("document.activeElement.tagName") == "BODY" {
			continue
		}
		assert.NotEqual(t, "none", p.text("getComputedStyle(document.activeElement).outlineStyle"), id)
		assert.NotEmpty(t, p.text(`document.activeElement.getAttribute('aria-label') || document.activeElement.textContent`), id)
	}
	for _, id := range []string{"Save", "show-help", "query", "product", "namespace", "class", "state", "sort", "grid", "pods"} {
		assert.True(t, seen[id], "%s is not reached", id)
	}
}

// TestGrid_Roles_Complete: rows have headers, cells have names.
func TestGrid_Roles_Complete(t *testing.T) {
	t.Parallel()
	p := open(t, saved(t, cluster(t, 6, 3)), 1360, 800)
	assert.Equal(t, 6, p.number("document.querySelectorAll('#grid [role=row]:has(> [role=rowheader])').length"))
	assert.Equal(t, 44, p.number("document.querySelectorAll('#grid [role=gridcell][aria-label*=\"free\"]').length"))
	assert.Zero(t, p.number("document.querySelectorAll('#grid [role=gridcell]:not([aria-colindex])').length"))
	assert.Equal(t, 9, p.number("Number(document.querySelector('#grid').getAttribute('aria-colcount'))"))
	assert.Equal(t, 3, p.number("document.querySelectorAll('#pods [role=option][aria-setsize=\"3\"]').length"))
	assert.Zero(t, p.number("document.querySelectorAll('select:not([aria-label]), input:not([aria-label]), button:not([aria-label]):empty').length"))
}
