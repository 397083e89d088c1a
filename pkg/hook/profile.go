package hook

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Profile makes the loader load Prism's library into the container's processes.
const Profile = "profile"

// libraryLink is the name of the library for the loader: a link in the container's own folder. AddressSanitizer's shared runtime terminates
// a program if the name of the first loaded library does not contain "libasan.so", and its static runtime if such a path is mapped
// (compiler-rt/lib/asan/asan_linux.cpp): the loader uses the name of the link, and the kernel maps the path of the library.
const libraryLink = "libprism-beside-libasan.so"

// Paths in the container. The CDI spec of the claim mounts them, the last as a tmpfs of the container's own.
const (
	library         = "/run/prism/programs/libprism-inject.so"
	resultsFolder   = "/run/prism/results"
	containerFolder = "/run/prism/container"
	planFile        = "/run/prism/plan/run"
	matchFile       = "/run/prism/plan/match"
	preloadFile     = "/etc/ld.so.preload"
)

// profiling contains the arguments of profile.
type profiling struct {
	claim, node string
	// inbox is the source of the claim's reports on the host: another claim with a profile hides it in the container.
	inbox string
	// containers are globs of container names; none stands for every container.
	containers []string
	failClosed bool
}

func parseProfile(args []string) (profiling, error) {
	flags := newFlags(Profile)
	var p profiling
	var containers string
	flags.StringVar(&p.claim, "claim", "", "UID of the claim")
	flags.StringVar(&p.node, "node", "", "name of the node")
	flags.StringVar(&p.inbox, "inbox", "", "directory of the claim's results on the host")
	flags.StringVar(&containers, "containers", "*", "globs of container names, separated by commas")
	flags.BoolVar(&p.failClosed, "fail-closed", false, "fail the container if it cannot be profiled")
	err := parse(flags, args)
	p.containers = strings.Split(containers, ",")
	for _, glob := range p.containers {
		if _, bad := path.Match(glob, ""); bad != nil && err == nil {
			err = fmt.Errorf("%s: -containers: invalid glob %q", flags.Name(), glob)
		}
	}
	return p, err
}

// wants reports whether the claim's profile applies to this container.
func (p profiling) wants(container string) bool {
	for _, glob := range p.containers {
		if matched, err := path.Match(glob, container); err == nil && matched {
			return true
		}
	}
	return false
}

// profile prepares the container for the profiler. It fails the container only if the claim requires that.
func (p Program) profile(args []string) error {
	wanted, err := parseProfile(args)
	if err == nil {
		err = bounded(func() error { return p.prepareContainer(wanted) })
	}
	if err == nil {
		return nil
	}
	if wanted.failClosed {
		return fmt.Errorf("preparing the container for the profiler: %w; with failurePolicy FailOpen it starts unprofiled", err)
	}
	return nil
}

// prepareTimeout limits the delay of a container: its files may be on a server that does not answer.
const prepareTimeout = 15 * time.Second

// bounded converts a panic or a timeout of prepare into an error, so that the container can still start.
func bounded(prepare func() error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if cause := recover(); cause != nil {
				done <- fmt.Errorf("internal error: %v", cause)
			}
		}()
		done <- prepare()
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(prepareTimeout):
		return fmt.Errorf("it took longer than %v", prepareTimeout)
	}
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
	about := about{claim: wanted.claim, node: wanted.node, identity: config.identity()}
	root, err := openRoot(s.Bundle, config)
	if err != nil {
		return err
	}
	defer root.close()
	switch claim, err := root.mountedClaim(); {
	case err != nil:
		return err
	case claim != wanted.claim && wanted.wants(about.container):
		return root.yield(about, wanted)
	case claim != wanted.claim || !wanted.wants(about.container):
		return nil
	}
	// runc and crun execute the hook from the container's first process, in its namespaces. The pid in the state is in runc's own view, and
	// crun omits it.
	about.init = p.Parent
	first := root.first(config)
	about.static = first.static
	own, err := root.ownFolder()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(own) }()
	var reason string
	err = root.inject(own, config, &about)
	if err != nil {
		reason = "PreloadNotPossible"
	} else if about.static && root.selects(first) {
		reason = "StaticOrMusl"
	}
	if reason != "" {
		// The container starts anyway, even without this note.
		_ = noteOnce(own, about, reason, err, func() (int, error) { return root.open(resultsFolder, unix.O_PATH|unix.O_DIRECTORY, 0) })
	}
	return err
}

// maxPlan limits the bytes that are read of a plan: its first lines name the claim.
const maxPlan = 1 << 20

// mountedClaim returns the claim whose plan is mounted in the container. If several claims of a container request a profile, the mounts of
// one claim hide the mounts of the others, and only its hook acts.
func (r root) mountedClaim() (string, error) {
	fd, err := r.open(planFile, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", fmt.Errorf("opening %s of the container: %w", planFile, err)
	}
	plan, err := readRegular(fd, planFile, maxPlan)
	if err != nil {
		return "", fmt.Errorf("reading %s of the container: %w", planFile, err)
	}
	for value := range strings.SplitSeq(string(plan), "\x00") {
		if claim, found := strings.CutPrefix(value, "claim="); found {
			return claim, nil
		}
	}
	return "", fmt.Errorf("%s of the container names no claim", planFile)
}

// yield handles a claim that is not profiled in the container because another claim's plan is mounted. It leaves a message for that claim's
// sessions, and a note in its own claim's inbox, which is not mounted in the container. Root of a user namespace cannot write there; then
// the claim gets no report.
func (r root) yield(about about, wanted profiling) error {
	own, err := r.ownFolder()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(own) }()
	if err := several(own); err != nil {
		return err
	}
	cause := errors.New("another claim of the container requests a profile, and the plan of that claim is mounted")
	return noteOnce(own, about, "OtherProfileWon", cause, func() (int, error) {
		return unix.Open(wanted.inbox, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
}

// inject writes the files for the programs in the container, and makes the loader load the library as the last step: once the list is
// bound, a process can be profiled.
func (r root) inject(own int, config *config, about *about) error {
	if err := about.write(own); err != nil {
		return err
	}
	if err := r.temporary(config); err != nil {
		return err
	}
	return r.preload(own)
}
