package collector

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/pkg/profiler/counters"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// The states in the note of a recording that prism-run writes.
const (
	noteFinished = "Finished"
	noteFailed   = "Failed"
)

// stoppedReason is the reason in a note if the plugin had stopped recordings, because the reports of the claim reached their limit.
const stoppedReason = "Stopped"

// errExited is the error of a prism-run that exited without one.
var errExited = errors.New("prism-run exited")

// folderForm matches folders of sessions, w, and of recordings, s.
var folderForm = regexp.MustCompile(`^[sw][0-9]{1,10}-[0-9a-f]{16}$`)

// process is a recording by a prism-run.
type process struct {
	runner     *runner
	manual     bool
	own, inbox string
	stdin      io.Closer
	text       output
	progress   chan event
	// folders are the folders in the inbox by name: nil if they are older. waited is the session, last the last recording that ended.
	folders      map[string]*folder
	waited, last *folder
	// reported is the last reported reason, ended how it ended.
	reported counters.Reason
	ended    outcome
}

// folder is a folder of the process. Its files stay open, because the plugin may move or remove it as soon as it is complete.
type folder struct {
	note, log *os.File
	// state and reason are the values in the note, text is all that is said about the recording.
	state, reason, text string
	failed              bool
}

func (p *process) events() <-chan event { return p.progress }

func (p *process) finish() { _ = p.stdin.Close() }

func (p *process) result() outcome { return p.ended }

// follow reads the inbox when it changes, until prism-run exits.
func (p *process) follow(changed <-chan struct{}, exited <-chan error) {
	defer close(p.progress)
	for {
		p.read()
		select {
		case <-changed:
		case err := <-exited:
			p.read()
			p.ended = p.conclude(err)
			p.close()
			return
		}
	}
}

// read reads the folders of this prism-run. Its session is read before recordings: if its state is read as Waiting, a failed recording
// before that is read as well.
func (p *process) read() {
	entries, err := names(p.runner.root, p.inbox, maxFolders)
	if err != nil {
		return // it is removed with the order
	}
	for _, name := range entries {
		if _, known := p.folders[name]; !known && folderForm.MatchString(name) {
			p.folders[name] = &folder{}
			_ = p.runner.watcher.Add(p.path(name)) // the next change of the inbox is read in any case
		}
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(p.folders))) {
		f := p.folders[name]
		if f == nil {
			continue
		}
		p.readFolder(name, f)
		if name[0] == 'w' {
			p.session(f)
		} else {
			p.recording(f)
		}
		if !slices.Contains(entries, name) {
			p.drop(name)
		}
	}
}

func (p *process) path(elements ...string) string {
	return filepath.Join(append([]string{p.runner.dir, p.inbox}, elements...)...)
}

// readFolder reads the files of a folder, as far as they exist.
func (p *process) readFolder(name string, f *folder) {
	const note, log = "note", "nsys.log"
	if f.note == nil {
		if f.note, _ = open(p.runner.root, filepath.Join(p.inbox, name, note)); f.note != nil && p.runner.watcher.Add(p.path(name, note)) == nil {
			// Only the note: nsys writes the report into the folder all the time.
			_ = p.runner.watcher.Remove(p.path(name))
		}
	}
	if f.log == nil {
		f.log, _ = open(p.runner.root, filepath.Join(p.inbox, name, log))
	}
	values := parseNote(contents(f.note))
	f.state, f.reason = values["state"], values["reason"]
	f.text = contents(f.log) + "\n" + values["message"]
}

// contents returns the beginning of a file; "" of nil.
func contents(file *os.File) string {
	if file == nil {
		return ""
	}
	raw, _ := io.ReadAll(io.NewSectionReader(file, 0, maxOutput))
	return string(raw)
}

// parseNote parses lines "key=value". Of repeated keys the last applies.
func parseNote(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, "="); ok && strings.HasSuffix(line, "\n") {
			values[key] = strings.TrimSpace(value)
		}
	}
	return values
}

// session reports the state of the session.
func (p *process) session(f *folder) {
	p.waited = f
	switch session.State(f.state) {
	case session.Waiting, session.Starting:
		p.report(counters.Waiting)
	case session.Recording, session.Ending:
		p.report(counters.Recording)
	}
}

// recording reports the state of a recording.
func (p *process) recording(f *folder) {
	switch {
	case f.state == noteFinished || f.state == noteFailed:
		p.last = f
		if !p.manual {
			// nsys has exited.
			p.finish()
		} else if f.state == noteFailed && !f.failed {
			f.failed = true
			reason, message := explain(f.text, counters.Failed)
			p.progress <- event{failed: &outcome{reason: reason, message: message}}
		}
	case !p.manual && f.state == string(session.Recording):
		p.report(counters.Recording)
	}
}

func (p *process) report(reason counters.Reason) {
	if p.reported != reason {
		p.reported = reason
		p.progress <- event{reason: reason}
	}
}

// drop forgets a folder that the plugin removed. It removes the folder of a session only after nsys beside the process has exited.
func (p *process) drop(name string) {
	f := p.folders[name]
	for _, file := range []*os.File{f.note, f.log} {
		if file != nil {
			_ = file.Close()
		}
	}
	p.folders[name] = nil
	if name[0] == 'w' {
		p.finish()
	}
}

// conclude returns how the recording ended.
func (p *process) conclude(err error) outcome {
	f, otherwise := p.last, counters.Failed
	if p.manual && p.waited != nil && (f == nil || f.state != noteFailed) {
		f = p.waited // nsys beside the process exited
	}
	if f == nil {
		f = &folder{text: string(p.text.bytes) + "\n" + fmt.Sprint(cmp.Or(err, errExited))}
	}
	switch {
	case p.manual:
	case f.state == noteFailed && f.reason == stoppedReason:
		return outcome{reason: counters.Ended}
	case f.state == noteFinished:
		otherwise = counters.Ended
	}
	// nsys may also record without counters.
	reason, message := explain(f.text, otherwise)
	if reason == counters.Ended {
		message = ""
	}
	return outcome{reason: reason, message: message}
}

// close releases all that belongs to the process.
func (p *process) close() {
	for name, f := range p.folders {
		if f != nil {
			_ = p.runner.watcher.Remove(p.path(name, "note"))
			_ = p.runner.watcher.Remove(p.path(name))
			p.drop(name)
		}
	}
	_ = p.runner.watcher.Remove(p.path())
	_ = os.RemoveAll(p.own)
}
