package hook

import (
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Profile has the loader put Prism's library into the container's processes.
const Profile = "profile"

// Paths in the container. The CDI spec of the claim mounts what is there, the last as a tmpfs of the container's own.
const (
	library         = "/run/prism/programs/libprism-inject.so"
	resultsFolder   = "/run/prism/results"
	containerFolder = "/run/prism/container"
	preloadFile     = "/etc/ld.so.preload"
)

// profiling is what the arguments of profile say.
type profiling struct {
	claim, node string
	// containers are globs of container names; none is every container.
	containers []string
	failClosed bool
}

func parseProfile(args []string) (profiling, error) {
	flags := newFlags(Profile)
	var p profiling
	var containers string
	flags.StringVar(&p.claim, "claim", "", "UID of the claim")
	flags.StringVar(&p.node, "node", "", "name of the node")
	flags.StringVar(&containers, "containers", "*", "globs of container names, separated by commas")
	flags.BoolVar(&p.failClosed, "fail-closed", false, "fail the container where it cannot be profiled")
	err := parse(flags, args)
	p.containers = strings.Split(containers, ",")
	for _, glob := range p.containers {
		if _, bad := path.Match(glob, ""); bad != nil && err == nil {
			err = fmt.Errorf("%s: -containers: invalid glob %q", flags.Name(), glob)
		}
	}
	return p, err
}

// wants says whether the claim's profile is for this container.
func (p profiling) wants(container string) bool {
	for _, glob := range p.containers {
		if matched, err := path.Match(glob, container); err == nil && matched {
			return true
		}
	}
	return false
}

// profile prepares the container for the profiler. It fails the container only where the claim wants that.
func (p Program) profile(args []string) error {
	wanted, err := parseProfile(args)
	if err == nil {
		err = p.prepareContainer(wanted)
	}
	if err == nil {
		return nil
	}
	if wanted.failClosed {
		return fmt.Errorf("preparing the container for the profiler: %w; with failurePolicy FailOpen it starts without", err)
	}
	return nil
}

func (p Program) prepareContainer(wanted profiling) error {
	s, err := p.state()
	if err != nil {
		return err
	}
	config, err := readBundle(s.Bundle)
	if err != nil {
		return err
	}
	about := config.container(wanted)
	if !wanted.wants(about.container) {
		return nil
	}
	root, err := openRoot(s.Bundle, config)
	if err != nil {
		return err
	}
	defer root.close()
	about.init = p.localPID(s.Pid)
	about.static = root.static(config)
	own, err := root.ownFolder()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(own) }()
	var reason string
	err = root.inject(own, config, &about)
	if err != nil {
		reason = "PreloadNotPossible"
	} else if about.static {
		reason = "StaticOrMusl"
	}
	if reason != "" {
		// The container starts all the same, so does it without this note.
		_ = root.note(about, reason, err)
	}
	return err
}

// inject writes what the programs in the container read, and has the loader load the library last: with the list bound, a process can be
// profiled.
func (r root) inject(own int, config *config, about *about) error {
	if err := about.write(own); err != nil {
		return err
	}
	if err := r.temporary(config); err != nil {
		return err
	}
	return r.preload(own)
}
