package exporter

import (
	"bytes"
	"compress/gzip"
	"sync"
)

// format is one of the pages.
type format int

const (
	nativeText format = iota
	nativeOpenMetrics
	dcgmText
)

// contentTypes are what the pages say of themselves. The page with dcgm-exporter's names is text only: OpenMetrics has no counters without
// the suffix _total.
var contentTypes = map[format]string{
	nativeText:        "text/plain; version=0.0.4; charset=utf-8",
	nativeOpenMetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8",
	dcgmText:          "text/plain; version=0.0.4; charset=utf-8",
}

// pages keeps each page as long as it says what view says. It is safe for concurrent use.
type pages struct {
	// view returns what pages are made of now: cheap, and the same value until something changed.
	view func() view

	mu       sync.Mutex
	of       view
	plain    map[format][]byte
	zipped   map[format][]byte
	rendered int // how many pages were made, for tests

	// text, archive and zip are used for each page again: a page and what compresses it are most of the exporter's memory, and without them a
	// scrape would wait for the garbage collector.
	text    []byte
	archive bytes.Buffer
	zip     *gzip.Writer
}

// view is what pages are made of. Values compare with ==.
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

// render makes a page, which stays until the next one is made.
func (p *pages) render(page format) []byte {
	p.rendered++
	p.text = p.of.append(p.text[:0], page)
	return p.text
}

// compressed keeps the page without its text, which no other client has asked for.
func (p *pages) compressed(page format) []byte {
	if zipped, ok := p.zipped[page]; ok {
		return zipped
	}
	text, ok := p.plain[page]
	if !ok {
		text = p.render(page)
	}
	if p.zip == nil {
		// A page is sent a few times to one network; a third more bytes cost a quarter of the time.
		p.zip, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed)
	}
	p.archive.Reset()
	p.zip.Reset(&p.archive)
	_, _ = p.zip.Write(text) // a buffer takes everything
	_ = p.zip.Close()
	p.zipped[page] = bytes.Clone(p.archive.Bytes())
	return p.zipped[page]
}
