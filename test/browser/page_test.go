package browser_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/maintenance"
	"github.com/prism-gpu/prism/test/fakes/gpucluster"
)

// contrast is the smallest contrast of texts on the colours of the page, as WCAG defines it, times 100.
const contrast = `(() => {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => {
    const probe = document.createElement('i');
    probe.style.color = style.getPropertyValue(name);
    document.body.append(probe);
    const [r, g, b] = getComputedStyle(probe).color.match(/\d+/g).map(Number);
    probe.remove();
    return [r, g, b];
  };
  const light = (name) => colour(name).map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  return Math.floor(100 * Math.min(...[
    ['--text', '--panel'], ['--text', '--page'], ['--muted', '--panel'], ['--muted', '--page'], ['--accent', '--panel'], ['--bad', '--panel'],
    ['--bad', '--bad-soft'], ['--gpu-ink', '--gpu'], ['--mig-ink', '--mig'], ['--mps-ink', '--mps'], ['--timeslice-ink', '--timeslice'],
  ].map((pair) => ratio(...pair))));
})()`

func TestPage_LightAndDark_ReadableColours(t *testing.T) {
	t.Parallel()
	url := saved(t, cluster(t, 4, 2))
	pages := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		p := open(t, url, 1360, 800)
		require.NoError(t, p.tab.Emulate("", map[string]string{"prefers-color-scheme": scheme}))
		p.wait("matchMedia('(prefers-color-scheme: " + scheme + ")').matches")
		pages[scheme] = p.text("getComputedStyle(document.body).backgroundColor")
		assert.GreaterOrEqual(t, p.number(contrast), 450, "%s: contrast of texts", scheme)
	}
	assert.NotEqual(t, pages["light"], pages["dark"])
}

// TestPage_Kinds_DifferWithoutColours: each kind of device has a pattern and a letter of its own.
func TestPage_Kinds_DifferWithoutColours(t *testing.T) {
	t.Parallel()
	p := open(t, saved(t, cluster(t, 8, 0)), 1360, 800)
	patterns := p.text(`['gpu', 'mig', 'mps', 'timeslice'].map((kind) => {
		const image = getComputedStyle(document.querySelector('.part.' + kind)).backgroundImage;
		return image.replace(/(color\(.*?\)|rgba?\(.*?\)|oklab\(.*?\))/g, '').replace(/ /g, '');
	}).join('\n')`)
	seen := map[string]bool{}
	for _, pattern := range strings.Split(patterns, "\n") {
		assert.False(t, seen[pattern], "two kinds with the pattern %s", pattern)
		seen[pattern] = true
	}
	for kind, letter := range map[string]string{"gpu": "W", "mps": "M", "timeslice": "T"} {
		assert.Contains(t, p.text("document.querySelector('.part."+kind+":not(.rest)').textContent"), letter)
	}
	assert.Regexp(t, `^[1-7]g`, p.text("[...document.querySelectorAll('.part.mig')].map((e) => e.textContent).sort().pop()"))
}

// TestPage_Loads_LinesBelowBars: a line is as long as the GPU is busy, and none is drawn if that is unknown.
func TestPage_Loads_LinesBelowBars(t *testing.T) {
	t.Parallel()
	p := open(t, saved(t, cluster(t, 4, 0)), 1360, 800)
	assert.Equal(t, 28, p.number("document.querySelectorAll('.gpu-cell .load:not([hidden])').length"))
	p.run("document.querySelector('[data-node=gpu-a01] [data-column=\"1\"]').click()")
	p.wait("document.querySelector('#details .facts')")
	details := p.text("document.querySelector('#details .facts').textContent")
	width := p.text("document.querySelector('[data-node=gpu-a01] [data-column=\"1\"] .load span').style.width")
	assert.Contains(t, details, "Utilization"+strings.TrimSuffix(width, "%")+" %")
	p.run("document.querySelector('#state').value = 'idle'; document.querySelector('#state').dispatchEvent(new Event('input', {bubbles: true}))")
	p.wait("document.querySelector('#found').textContent !== ''")
	assert.Zero(t, p.number("[...document.querySelectorAll('.gpu-cell:not(.dim) .load span')].filter((e) => parseFloat(e.style.width) >= 5).length"))

	p = open(t, serve(t, cluster(t, 2, 0)).url, 1360, 800)
	assert.Zero(t, p.number("document.querySelectorAll('.gpu-cell .load:not([hidden])').length"))
	assert.Equal(t, "true", p.text("String(document.querySelector('#legend-load').hidden)"))
}

func TestPage_ThousandNodes_DrawsRowsInView(t *testing.T) {
	t.Parallel()
	p := open(t, saved(t, cluster(t, 1000, 600)), 1360, 800)
	most := 0
	check := func() {
		t.Helper()
		most = max(most, p.rows())
		assert.Less(t, p.number("document.querySelectorAll('.pending').length"), 40)
	}
	check()
	assert.Equal(t, "1,000", p.text("document.querySelector('#summary b').textContent"))
	assert.Equal(t, 1000, p.number("Number(document.querySelector('#grid').getAttribute('aria-rowcount'))"))
	for _, at := range []string{"0.25", "0.5", "1"} {
		p.run("document.querySelector('#grid').scrollTop = document.querySelector('#grid').scrollHeight * " + at)
		p.wait("document.querySelector('.node').getAttribute('aria-rowindex') > 100")
		check()
	}
	p.wait("[...document.querySelectorAll('.node')].pop().dataset.node === 'gpu-j99'")
	assert.Less(t, most, 40, "rows out of view must not be drawn")
	assert.Less(t, p.number("document.querySelectorAll('*').length"), 6000)
	p.run("document.querySelector('#query').value = 'node:gpu-c1'; document.querySelector('#query').dispatchEvent(new Event('input', {bubbles: true}))")
	p.wait("document.querySelector('#found').textContent === '10 of 1,000 nodes'")
}

func TestPage_MarkupInNames_StaysText(t *testing.T) {
	t.Parallel()
	evil := `x"><script>window.hit=1<b><img src=x onerror="window.hit=1">`
	store := cluster(t, 6, 6, evil)
	store.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-a00", Annotations: map[string]string{
		maintenance.Key(maintenance.Maintain, gpucluster.Driver, maintenance.All): evil + "</script><script>window.hit=1</script>",
	}}})
	for _, url := range []string{saved(t, store), serve(t, store).url} {
		p := open(t, url, 1360, 800)
		p.run("document.querySelector('[data-node=gpu-a00] [data-column=\"1\"]').click()")
		p.wait("document.querySelector('#details h2')")
		assert.Contains(t, p.text("document.querySelector('#details').textContent"), "</script><script>window.hit=1")
		p.run("document.querySelector('.back').click(); document.querySelector('.pending').click()")
		p.wait("document.querySelector('#details .command')")
		assert.Contains(t, p.text("document.querySelector('#details').textContent"), evil)
		assert.Contains(t, p.text("document.querySelector('#namespace').textContent"), evil)
		assert.Zero(t, p.number("document.querySelectorAll('img').length"))
		assert.Equal(t, "undefined", p.text("typeof window.hit"))
	}
}

func TestPage_Print_AllRows(t *testing.T) {
	t.Parallel()
	p := open(t, saved(t, cluster(t, 60, 30)), 1360, 800)
	before := p.rows()
	require.Less(t, before, 60)
	p.run(`addEventListener('beforeprint', () => {
		window.printed = [document.querySelectorAll('.node').length, document.querySelectorAll('.pending').length, document.querySelector('#left-out').textContent].join();
	})`)
	pdf, err := p.tab.Print()
	require.NoError(t, err)
	assert.Equal(t, "60,30,", p.text("window.printed"))
	assert.Greater(t, bytes.Count(pdf, []byte("/Type /Page\n"))+bytes.Count(pdf, []byte("/Type /Page ")), 2, "pages")
	p.wait("document.querySelectorAll('.node').length < 60")
}

func TestPage_PrintOfTooManyNodes_SaysWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	p := open(t, saved(t, cluster(t, 503, 501)), 1360, 800)
	p.run("dispatchEvent(new Event('beforeprint'))")
	assert.Equal(t, 500, p.rows())
	assert.Equal(t, "3 nodes more are left out: use the filter.", p.text("document.querySelector('#left-out').textContent"))
	assert.Equal(t, "1 pod more is left out: use the filter.", p.text("document.querySelector('#pods-left-out').textContent"))
	p.run("dispatchEvent(new Event('afterprint'))")
	assert.Less(t, p.rows(), 40)
}

// TestPage_NarrowWindow_FitsInWidth: a telephone, and 40 columns of text.
func TestPage_NarrowWindow_FitsInWidth(t *testing.T) {
	t.Parallel()
	url := serve(t, cluster(t, 6, 6)).url
	for _, width := range []int64{320, 375, 700, 1000} {
		p := open(t, url, width, 700)
		fits := func(what string) {
			t.Helper()
			for _, box := range []string{"document.documentElement", "document.querySelector('#grid')", "document.querySelector('#details')"} {
				assert.LessOrEqual(t, p.number(box+".scrollWidth - "+box+".clientWidth"), 0, "%s, %d pixels: %s", what, width, box)
			}
		}
		fits("nodes")
		p.run("document.querySelector('[data-node=gpu-a00] [data-column=\"6\"]').click()")
		p.wait("document.querySelector('#details .facts')")
		fits("GPU")
		p.run("document.querySelector('.back').click(); document.querySelector('[data-view=side]').click(); document.querySelector('.pending').click()")
		p.wait("document.querySelector('#details .holders')")
		fits("pod")
	}
}
