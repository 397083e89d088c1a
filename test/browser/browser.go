// Package browser tests the page of kubectl prism ui in Chromium.
package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// ErrMissing means that no browser is installed.
var ErrMissing = errors.New("chromium is missing: install Debian's package chromium, or run hack/packages.sh chromium as root")

// programs are the names of the browser in distributions.
var programs = []string{"chromium", "chromium-browser", "google-chrome", "chrome"}

// Find returns the path of the browser, or ErrMissing.
func Find() (string, error) {
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrMissing
}

// ReboundHost is a name that resolves to the loopback interface, as a hostile name server may answer.
const ReboundHost = "rebound.example"

// Browser is a running Chromium that reaches the loopback interface alone.
type Browser struct {
	ctx  context.Context
	stop context.CancelFunc
}

// Start starts a browser.
func Start(ctx context.Context) (*Browser, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	options := append([]chromedp.ExecAllocatorOption{}, chromedp.DefaultExecAllocatorOptions[:]...)
	options = append(options, chromedp.ExecPath(path), chromedp.DisableGPU,
		chromedp.Flag("disable-component-update", true), chromedp.Flag("host-resolver-rules", "MAP "+ReboundHost+" 127.0.0.1 , MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stopAllocator := chromedp.NewExecAllocator(ctx, options...)
	first, stopFirst := chromedp.NewContext(allocator)
	b := &Browser{ctx: first, stop: func() { stopFirst(); stopAllocator() }}
	if err := chromedp.Do(first); err != nil {
		b.stop()
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	return b, nil
}

// Stop ends the browser.
func (b *Browser) Stop() { b.stop() }

// Tab is a tab with its own cookies.
type Tab struct {
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

// Tab opens a tab of a size in pixels. The function closes it.
func (b *Browser) Tab(width, height int64) (*Tab, context.CancelFunc, error) {
	t := &Tab{}
	ctx, closeTab := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(t.listen))
	t.ctx = ctx
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, height)); err != nil {
		closeTab()
		return nil, nil, fmt.Errorf("opening a tab: %w", err)
	}
	return t, closeTab, nil
}

// listen collects exceptions, refused resources and violations of the policy.
func (t *Tab) listen(event any) {
	text := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Text
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			text += " " + thrown.Description
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			text = e.Entry.Text + " " + e.Entry.URL
		}
	}
	if text != "" {
		t.mu.Lock()
		t.problems = append(t.problems, text)
		t.mu.Unlock()
	}
}

// Problems are the errors that the page has logged so far.
func (t *Tab) Problems() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.problems)
}

// Emulate sets features of media queries, such as "prefers-color-scheme", and the medium: "" or "print".
func (t *Tab) Emulate(media string, features map[string]string) error {
	params := emulation.SetEmulatedMediaParams{Media: media}
	for name, value := range features {
		params.Features = append(params.Features, &emulation.MediaFeature{Name: name, Value: value})
	}
	_, err := chromedp.Call(t.ctx, emulation.SetEmulatedMedia, params)
	return err
}

// Open opens a URL and waits until the page has loaded.
func (t *Tab) Open(url string) error { return chromedp.Do(t.ctx, chromedp.Navigate(url)) }

// Wait waits until an expression of JavaScript is true.
func (t *Tab) Wait(expression string) error {
	if _, err := chromedp.Run(t.ctx, chromedp.Poll[any](expression)); err != nil {
		return fmt.Errorf("waiting for %s: %w; the page logged %q", expression, err, t.Problems())
	}
	return nil
}

// Press presses keys, one after the other. A key and its character are one event, as of a keyboard: a page that handles the key gets no
// character.
func (t *Tab) Press(keys string) error {
	for _, key := range keys {
		events := kb.Encode(key)
		for i, event := range events {
			if event.Type == input.DispatchKeyEventTypeChar {
				continue
			}
			if i+1 < len(events) && events[i+1].Type == input.DispatchKeyEventTypeChar {
				event.Type, event.Text, event.UnmodifiedText = input.DispatchKeyEventTypeKeyDown, events[i+1].Text, events[i+1].UnmodifiedText
			}
			if _, err := chromedp.Call(t.ctx, input.DispatchKeyEvent, *event); err != nil {
				return fmt.Errorf("pressing %q: %w", key, err)
			}
		}
	}
	return nil
}

// Run evaluates an expression of JavaScript.
func (t *Tab) Run(expression string) error {
	_, err := chromedp.Run(t.ctx, chromedp.Evaluate[any](expression))
	return err
}

// Text evaluates an expression that is a string.
func (t *Tab) Text(expression string) (string, error) {
	return chromedp.Run(t.ctx, chromedp.Evaluate[string](expression))
}

// Number evaluates an expression that is a number.
func (t *Tab) Number(expression string) (int, error) {
	return chromedp.Run(t.ctx, chromedp.Evaluate[int](expression))
}

// Screenshot returns a picture of the viewport as PNG.
func (t *Tab) Screenshot() ([]byte, error) { return chromedp.Run(t.ctx, chromedp.CaptureScreenshot()) }

// Print returns the page as PDF.
func (t *Tab) Print() ([]byte, error) {
	return chromedp.Run(t.ctx, chromedp.PrintToPDF(chromedp.PDFPaper(chromedp.PaperA4), chromedp.PDFLandscape()))
}
