package allocation

import (
	"sync"
	"time"
)

// Source is a source of a Tracker.
type Source struct {
	Name SourceName
	// OK is set if the last attempt succeeded completely.
	OK bool
	// Read is the time of the last success; zero: never.
	Read time.Time
	// Error is the reason why the last attempt failed, empty if it succeeded.
	Error string
	// Errors counts failed attempts.
	Errors uint64
}

// SourceName is the name of a source in metrics and in /readyz.
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
	// SourcePodLabels: the container runtime's list of pods, with their labels. Only a Tracker with Options.PodLabels uses it.
	SourcePodLabels SourceName = "pod_labels"
)

var sourceNames = [...]SourceName{SourceRecords, SourcePodResources, SourceCRI, SourceProc, SourcePodLabels}

// notRead is the error of a source before the first read.
const notRead = "not read yet"

// sources stores the result of the last read of each source.
type sources struct {
	// podLabels is set if SourcePodLabels is one of them.
	podLabels bool

	mu   sync.Mutex
	last map[SourceName]Source
}

// note stores the result of an attempt.
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
