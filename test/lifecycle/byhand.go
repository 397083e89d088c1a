package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin"
	"github.com/prism-gpu/prism/pkg/plugin/profiler"
	byhand "github.com/prism-gpu/prism/pkg/plugin/profiler/sessions"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// waitFolder is the name of the folder of the only process of a claim that waits for commands.
const waitFolder = "w42-0123456789abcdef"

// commandIDs are the ids of the commands of a scenario, which a client repeats until they are answered.
var commandIDs = map[session.Verb]string{
	v1alpha1.SessionStart: "00000000-0000-4000-8000-000000000001", v1alpha1.SessionStop: "00000000-0000-4000-8000-000000000002",
}

// byHand makes the claim's process wait for commands.
func (a Act) byHand() Act {
	a.ByHand = true
	return a.profiling()
}

// sessionsOf returns the node's processes that are recorded by hand; nil without a profiler.
func sessionsOf(p *plugin.Plugin) *byhand.Store {
	for _, e := range p.Machine.Extensions {
		if profiles, ok := e.(*profiler.Extension); ok {
			return profiles.Sessions()
		}
	}
	return nil
}

// awaitsCommands starts a process of the claim's container that waits for commands, with a state.
func (m *Machine) awaitsCommands(uid string, state session.State) error {
	dir := filepath.Join(m.inbox(uid), waitFolder)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	note := fmt.Sprintf("version=1\npod=train\ncontainer=main\nprocess=python3\npid=42\nstarted=%d\nstate=%s\n", m.Now().UnixNano(), state)
	return os.WriteFile(filepath.Join(dir, "note"), []byte(note), 0o600)
}

// commands passes a command to the claim's process, which must accept it. Sessions are read once in a second.
func (m *Machine) commands(ctx context.Context, p *Process, uid string, verb session.Verb) error {
	if err := reportsOf(p.Plugin).Lead(); err != nil {
		return err
	}
	m.Advance(time.Second)
	accepted, err := sessionsOf(p.Plugin).Command(ctx, session.Command{
		ID: commandIDs[verb], Verb: verb, Namespace: "default", Sessions: []string{store.ReportID(uid, waitFolder)},
	})
	if err == nil && len(accepted.Names) != 1 {
		err = fmt.Errorf("command %s of claim %s: accepted %v, refused %v", verb, uid, accepted.Names, accepted.Refused)
	}
	return err
}

// answers simulates the prism-run of the claim's process: it carries out the command in the control folder, once.
func (m *Machine) answers(uid string) error {
	raw, err := os.ReadFile(filepath.Join(m.control(uid), waitFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	command, ok := session.ParseControl(raw)
	if err != nil || !ok {
		return fmt.Errorf("the command for claim %s cannot be read: %q, %w", uid, raw, err)
	}
	file := filepath.Join(m.inbox(uid), waitFolder, session.AnswersFile)
	said, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil || bytes.Contains(said, []byte(command.ID)) {
		return err
	}
	now, state, outcome := m.Now().UnixNano(), session.Recording, session.Begun
	if command.Verb == v1alpha1.SessionStop {
		state, outcome = session.Waiting, session.Recorded
		err = m.record(uid, 0)
	} else {
		_, err = m.begin(uid, "state=Recording\n")
	}
	line := fmt.Sprintf("id=%s outcome=%s begun=%d report=%s\n", command.ID, outcome, now, recordingFolder)
	return errors.Join(err, m.awaitsCommands(uid, state), os.WriteFile(file, append(said, line...), 0o600))
}

// answersAct is the act of such a prism-run, which fails if the process got no such command.
func (m *Machine) answersAct(uid string, verb session.Verb) error {
	if err := m.answers(uid); err != nil {
		return err
	}
	said, err := os.ReadFile(filepath.Join(m.inbox(uid), waitFolder, session.AnswersFile))
	if err == nil && !bytes.Contains(said, []byte(commandIDs[verb])) {
		err = fmt.Errorf("the process of claim %s got no command %s", uid, verb)
	}
	return err
}

func (m *Machine) control(uid string) string {
	return filepath.Join(m.settings().ProfilesDir(), uid, "plan", session.ControlFolder)
}

// answeredOnce checks that no command of a claim whose process has answered them all is passed on again.
func (m *Machine) answeredOnce(p *Process, uid string) error {
	m.Advance(time.Second)
	sessionsOf(p.Plugin).Sweep()
	left, err := disk.OS{}.List(m.control(uid))
	if err != nil || len(left) > 0 {
		return fmt.Errorf("claim %s has answered all commands, and its control folder contains %v: %w", uid, left, err)
	}
	return nil
}
