package exporter

import (
	"bytes"
	"compress/gzip"
	"sync"
)

// format is the format of a page.
type format int

const (
	nativeText format = iota
	nativeOpenMetrics
	dcgmText
)

// contentTypes are the content types of the pages. The page with dcgm-exporter's names is text only, because OpenMetrics requires the
// suffix _total for counters.
var contentTypes = map[format]string{
	nativeText:        "text/plain; version=0.0.4; charset=utf-8",
	nativeOpenMetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8",
	dcgmText:          "text/plain; version=0.0.4; charset=utf-8",
}

// pages keeps each page until view returns another value. It is safe for concurrent use.
type pages struct {
	// view returns the current source of the pages. It is cheap, and returns the same value until something changed.
	view func() view

	mu       sync.Mutex
	of       view
	plain    map[format][]byte
	zipped   map[format][]byte
	rendered int // number of rendered pages, for tests

	// text, archive and zip are reused for each page: a page and its compressor take most of the exporter's memory, and without reuse a scrape
	// would wait for the garbage collector.
	text    []byte
	archive bytes.Buffer
	zip     *gzip.Writer
}

// view is the source of pages. Values are comparable with ==.
type view interface {
	// append appends a page to a text.
	append(to []byte, page format) []byte
}

// get returns a page. The result must not be changed.
func (p *pages) get(page format, zip bool) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.view(); now != p.of || p.plain == nil {
		p.of, p.plain, p.zipped = now, map[format][]byte{}, map[format][]byte{}
	}
	if zip {
		return p.compressed(page)
	}
	text, ok := p.plain[page]
	if !ok {
		text = bytes.Clone(p.render(page))
		p.plain[page] = text
	}
	return text
}

// render renders a page, which is valid until the next call.
func (p *pages) render(page format) []byte {
	p.rendered++
	p.text = p.of.append(p.text[:0], page)
	return p.text
}

// compressed keeps the page without its text, because no other client requested the text.
func (p *pages) compressed(page format) []byte {
	if zipped, ok := p.zipped[page]; ok {
		return zipped
	}
	text, ok := p.plain[page]
	if !ok {
		text = p.render(page)
	}
	if p.zip == nil {
		// A page is sent a few times to one network. A third more bytes save three quarters of the time.
		p.zip, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed)
	}
	p.archive.Reset()
	p.zip.Reset(&p.archive)
	_, _ = p.zip.Write(text) // writes to a buffer do not fail
	_ = p.zip.Close()
	p.zipped[page] = bytes.Clone(p.archive.Bytes())
	return p.zipped[page]
}
