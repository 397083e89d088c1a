package exporter

import (
	"bytes"
	"compress/gzip"
	"io"
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
}

// view is what pages are made of. Values compare with ==.
type view interface {
	render(w io.Writer, page format) error
}

// get returns a page. The result must not be changed.
func (p *pages) get(page format, zip bool) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.view(); now != p.of || p.plain == nil {
		p.of, p.plain, p.zipped = now, map[format][]byte{}, map[format][]byte{}
	}
	if zip {
		return p.compressed(page)
	}
	return p.text(page)
}

func (p *pages) text(page format) ([]byte, error) {
	if text, ok := p.plain[page]; ok {
		return text, nil
	}
	var text bytes.Buffer
	if err := p.of.render(&text, page); err != nil {
		return nil, err
	}
	p.rendered++
	p.plain[page] = text.Bytes()
	return p.plain[page], nil
}

// compressed keeps the page without its text, which no other client has asked for.
func (p *pages) compressed(page format) ([]byte, error) {
	if zipped, ok := p.zipped[page]; ok {
		return zipped, nil
	}
	var zipped bytes.Buffer
	// A page is sent a few times to one network; a third more bytes cost a quarter of the time.
	writer, err := gzip.NewWriterLevel(&zipped, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	text, ok := p.plain[page]
	if ok {
		_, err = writer.Write(text)
	} else {
		err = p.of.render(writer, page)
		p.rendered++
	}
	if err == nil {
		err = writer.Close()
	}
	if err != nil {
		return nil, err
	}
	p.zipped[page] = zipped.Bytes()
	return p.zipped[page], nil
}
