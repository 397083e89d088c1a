package allocation

import (
	"sync"
	"time"
)

// Source is where a Tracker reads from.
type Source struct {
	Name SourceName
	// OK says that the last attempt succeeded in whole.
	OK bool
	// Read is when it last succeeded; zero: never.
	Read time.Time
	// Error is why the last attempt did not, empty if it did.
	Error string
	// Errors counts the attempts that did not.
	Errors uint64
}

// SourceName names a source in metrics and in /readyz.
type SourceName string

// The sources.
const (
	// SourceRecords: the plugin's records.
	SourceRecords SourceName = "records"
	// SourcePodResources: the kubelet's pod resources API.
	SourcePodResources SourceName = "pod_resources"
	// SourceCRI: the container runtime's list of containers.
	SourceCRI SourceName = "cri"
	// SourceProc: the host's /proc.
	SourceProc SourceName = "proc"
	// SourcePodLabels: the container runtime's list of pods, with their labels. Only a Tracker with Options.PodLabels has it.
	SourcePodLabels SourceName = "pod_labels"
)

var sourceNames = [...]SourceName{SourceRecords, SourcePodResources, SourceCRI, SourceProc, SourcePodLabels}

// notRead is the error of a source that was not read yet.
const notRead = "not read yet"

// sources keeps how each source was read last.
type sources struct {
	// podLabels: SourcePodLabels is one of them.
	podLabels bool

	mu   sync.Mutex
	last map[SourceName]Source
}

// note notes an attempt.
func (s *sources) note(name SourceName, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	source := s.last[name]
	source.Name, source.OK, source.Error = name, err == nil, ""
	if err != nil {
		source.Error = err.Error()
		source.Errors++
	} else {
		source.Read = time.Now()
	}
	if s.last == nil {
		s.last = map[SourceName]Source{}
	}
	s.last[name] = source
}

func (s *sources) ok(name SourceName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[name].OK
}

func (s *sources) list() []Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Source, 0, len(sourceNames))
	for _, name := range sourceNames {
		if name == SourcePodLabels && !s.podLabels {
			continue
		}
		source, noted := s.last[name]
		if !noted {
			source = Source{Name: name, Error: notRead}
		}
		all = append(all, source)
	}
	return all
}
