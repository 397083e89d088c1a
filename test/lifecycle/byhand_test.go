package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// commandsAreKept checks, while claims are prepared, that a client that repeats its commands has each carried out once, and that no file of a
// command is left. again: it repeats them.
func (m *Machine) commandsAreKept(ctx context.Context, p *Process, claims map[string]*claimState, again bool) error {
	for uid, k := range claims {
		if !again || k.leaving || !k.prepare.ByHand {
			continue
		}
		if _, err := os.Lstat(filepath.Join(m.inbox(uid), waitFolder)); err != nil {
			if err := m.awaitsCommands(uid, session.Waiting); err != nil {
				return err
			}
		}
		for _, verb := range []session.Verb{v1alpha1.SessionStart, v1alpha1.SessionStop} {
			if err := errors.Join(m.commands(ctx, p, uid, verb), m.answers(uid), m.commands(ctx, p, uid, verb)); err != nil {
				return fmt.Errorf("repeating a command: %w", err)
			}
		}
		if err := m.answeredOnce(p, uid); err != nil {
			return err
		}
	}
	return nil
}

// commandsAreWhole checks that a process can read the files of commands at any time.
func (m *Machine) commandsAreWhole(claims map[string]*claimState) error {
	for uid := range claims {
		raw, err := os.ReadFile(filepath.Join(m.control(uid), waitFolder))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if _, whole := session.ParseControl(raw); err != nil || !whole {
			return fmt.Errorf("claim %s: the file of a command contains %q: %w", uid, raw, err)
		}
	}
	return nil
}
